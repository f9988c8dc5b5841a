// Which samples a step's shards and micro-batches get, and in which order what they give is added up.
#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/order/sample_order.hpp"
#include "fit_models.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE(
    "micro-batches are the shards in pieces, in the same order, of a part of their size, and change no exact sum") {
  const ImageData data = images(22);
  // Batches of 10, 10 and 2, in shards of two and three samples, and of one and none.
  FitOptions options{.global_batch = 10, .steps = 3, .shards = 4};
  const Trained whole = train(data, options, 3, column_sums);
  REQUIRE(whole.seen.size() == 3 * 4);
  CHECK(whole.seen.front().capacity == 3);
  for (const auto& [micro_batches, capacity] : {std::pair{2, 2}, std::pair{3, 1}}) {
    CAPTURE(micro_batches);
    options.accumulate = micro_batches;
    const Trained pieces = train(data, options, 3, column_sums);
    CHECK(pieces.seen.size() == 3 * 4 * static_cast<std::size_t>(micro_batches));
    for (const Seen& each : pieces.seen) {
      CHECK(each.capacity == capacity);
      CHECK(static_cast<std::int64_t>(each.labels.size()) <= capacity);
    }
    CHECK(labels_of(pieces.seen) == labels_of(whole.seen));
    CHECK(pieces.losses == whole.losses);
    CHECK(pieces.weights == whole.weights);
  }
}

TEST_CASE("a source that varies by epoch is asked for the samples of the epoch, and evaluated as it is") {
  const NumberedSamples train_samples;
  const ImageData data = images(1);
  const ImageSamples test_samples{data.test, DType::f64};
  FitOptions options{.global_batch = 4, .steps = 6, .shards = 2};
  const Trained whole = train({train_samples, test_samples}, options, 3, column_sums);
  std::vector<std::int32_t> expected;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (const std::int64_t sample : sample_order(7, options.seed, epoch))
      expected.push_back(static_cast<std::int32_t>(7 * epoch + sample));
  CHECK(labels_of(whole.seen) == expected);
  options.start = Observer::State{.steps = 3};
  const Trained rest = train({train_samples, test_samples}, options, 3, column_sums);
  CHECK(labels_of(rest.seen) == std::vector<std::int32_t>(expected.begin() + 7 + 4, expected.end()));
}

TEST_CASE("the gradients of a shard's micro-batches are added up first one first, those of the shards as a tree") {
  const double half = 0x1p-53;  // of what 1 can be increased by
  struct Case {
    std::vector<double> gradients;
    double sum;
  };
  // Two shards of four micro-batches each.
  const std::vector<Case> cases{
      {{1, half, half, half, 0, 0, 0, 0}, 1},  // one by one each half is lost
      {{half, half, half, half, 1, 0, 0, 0}, 1 + 4 * half},
      {{0, 0, 0, 1, half, half, 0, 0}, 1 + 2 * half},  // the second shard's are one number before they meet the 1
  };
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 2, .accumulate = 4};
  for (const Case& each : cases) {
    const Trained trained =
        train(images(8), options, 1,
              [&](std::size_t call, const SampleBatch&) -> std::vector<double> { return {each.gradients[call]}; });
    CHECK(-8 * trained.weights[0] == each.sum);
  }
}

TEST_CASE("a model is told where in which step its samples are, and gets the statistics of all of them") {
  const int shards = GENERATE(1, 4), micro_batches = GENERATE(1, 2);
  CAPTURE(shards, micro_batches);
  // Batches of 10, 10 and 2.
  const FitOptions options{.global_batch = 10, .steps = 3, .shards = shards, .accumulate = micro_batches};
  const Trained trained = train(images(22), options, 3, column_sums);
  std::vector<std::int64_t> samples(3);
  std::vector<std::vector<double>> totals(3, std::vector<double>(2));
  for (const Seen& each : trained.seen) {
    const auto step = static_cast<std::size_t>(each.place.step);
    REQUIRE(step < samples.size());
    // In order, so each begins where those before it end; one without samples may be anywhere.
    if (!each.labels.empty()) CHECK(each.place.first_sample == samples[step]);
    samples[step] += static_cast<std::int64_t>(each.labels.size());
    for (const std::int32_t label : each.labels) {
      totals[step][0] += label;
      totals[step][1] += label * label;
    }
  }
  CHECK(samples == std::vector<std::int64_t>{10, 10, 2});
  REQUIRE(trained.absorbed.size() == 3);
  for (std::size_t step = 0; step < 3; ++step) {
    CHECK(trained.absorbed[step].total == totals[step]);
    CHECK(trained.absorbed[step].samples == samples[step]);
  }
}

TEST_CASE("losses and gradients of a text are divided by its labels, samples and statistics counted by the window") {
  const int micro_batches = GENERATE(1, 2);
  // Batches of 8, 8 and 2 windows: of 32, 32 and 8 labels, by which sums divide without a rest.
  const FitOptions options{.global_batch = 8, .steps = 3, .shards = 4, .accumulate = micro_batches};
  const Trained trained = train(text(18, 4), text(5, 4), options);
  std::vector<double> means(3);
  std::vector<std::size_t> labels(3);
  for (const Seen& each : trained.seen) {
    const auto step = static_cast<std::size_t>(each.place.step);
    means.at(step) += std::accumulate(each.labels.begin(), each.labels.end(), 0.0);
    labels[step] += each.labels.size();
  }
  REQUIRE(labels == std::vector<std::size_t>{32, 32, 8});
  const double sum = means[0] + means[1] + means[2];
  for (std::size_t step = 0; step < 3; ++step) means[step] /= static_cast<double>(labels[step]);
  CHECK(trained.losses == means);
  CHECK(trained.weights[0] == -(means[0] + means[1] + means[2]));
  CHECK(trained.samples == std::vector<std::int64_t>{8, 16, 18});
  CHECK(trained.result.samples == 18);
  CHECK(trained.result.train_loss == sum / 72);
  REQUIRE(trained.absorbed.size() == 3);
  CHECK(trained.absorbed[0].samples == 8);
  CHECK(trained.absorbed[2].samples == 2);
}

TEST_CASE("losses, gradients and evaluations are divided by what the labels weigh, if the model says it") {
  const int micro_batches = GENERATE(1, 2);
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  MaskedModel model{strategy};
  Sgd sgd{{.learning_rate = 1}};
  Losses observer;
  const TextSet train = text(8, 5), test = text(3, 5), masked{tokens_of_text(std::vector<std::uint8_t>(11, 3)), 5};
  const auto sums_of = [](const TextSet& text) {
    double count = 0, weight = 0;
    for (const std::int32_t label : labels_of(text, text.tokens->count() - 1)) {
      if (label % 3 == 0) continue;
      count += 1;
      weight += label % 2 == 0 ? 1 : 0.5;
    }
    return std::pair{count, weight};
  };
  const auto [count, weight] = sums_of(train);
  const auto [test_count, test_weight] = sums_of(test);
  REQUIRE(count != weight);
  const TextSamples train_samples{train}, test_samples{test}, masked_samples{masked};
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 4, .accumulate = micro_batches};
  const auto run = [&](const SampleSource& source) {
    return fit(strategy, model, sgd, {source, test_samples}, options, observer);
  };
  const FitResult result = run(train_samples);
  CHECK(observer.losses == std::vector{count / weight});
  CHECK(result.train_loss == count / weight);
  CHECK(model.variables().front().local().to_vector<double>() == std::vector{-count / weight});
  CHECK(result.last_evaluation.loss == test_count / test_weight);
  CHECK(result.last_evaluation.accuracy == test_count / test_weight);
  // Where all labels weigh nothing there is nothing to learn, and no mean.
  CHECK(run(masked_samples).train_loss == 0);
  CHECK(observer.losses.back() == 0);
  CHECK(model.variables().front().local().to_vector<double>() == std::vector{-count / weight});
}

TEST_CASE("an only shard is accumulated where its gradient belongs") {
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 1, .accumulate = 4};
  const Trained trained = train(images(8), options, 1, [](std::size_t call, const SampleBatch&) -> std::vector<double> {
    return {static_cast<double>(call + 1)};
  });
  CHECK(trained.weights[0] == -10. / 8);
}

TEST_CASE("data that have changed end the run with their epoch, its evaluation or its divergence, on all ranks") {
  /// Images that change once a sample has been read so often.
  class Changing final : public SampleSource {
   public:
    Changing(const ImageData::Set& images, std::int64_t batches) : images_{images, DType::f64}, left_{batches} {}
    std::int64_t count() const override { return images_.count(); }
    SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
      return images_.make_batch(capacity, stream);
    }
    void fill(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
      images_.fill(samples, batch);
      --left_;
    }
    void require_unchanged() const override {
      if (left_ < 0) throw ConfigError{"FILE: has changed"};
    }

   private:
    ImageSamples images_;
    mutable std::int64_t left_;
  };
  constexpr std::int64_t never = 1000;
  const ImageData data = images(10);
  const auto steps_with = [&](std::int64_t train_batches, std::int64_t test_batches, FitOptions options) {
    const Changing source{data.train, train_batches}, test{data.test, test_batches};
    std::int64_t called = 0;
    const auto gradient = [&](std::size_t call, const SampleBatch&) -> std::vector<double> {
      called = static_cast<std::int64_t>(call) + 1;
      return {1};
    };
    try {
      (void)train({source, test}, options, 1, gradient);
    } catch (const ConfigError& error) {
      CHECK(std::string{error.what()} == "FILE: has changed");
      return called;
    }
    return std::int64_t{0};
  };
  // Epochs of 3 steps with one shard.
  CHECK(steps_with(0, never, {.global_batch = 4, .steps = 9, .shards = 1}) == 3);
  CHECK(steps_with(3, never, {.global_batch = 4, .steps = 9, .shards = 1}) == 6);
  CHECK(steps_with(3, never, {.global_batch = 4, .steps = 5, .shards = 1}) == 5);  // the end of the run
  CHECK(steps_with(never, 0, {.global_batch = 4, .steps = 9, .shards = 1, .evaluate_every = 2}) == 2);
  CHECK(steps_with(never, never, {.global_batch = 4, .steps = 9, .shards = 1}) == 0);
}

TEST_CASE("batches loaded ahead are those of their steps, from the first to go on with, and fail in their own step") {
  /// Images, of which one cannot be read.
  class Damaged final : public SampleSource {
   public:
    Damaged(const ImageData::Set& images, std::int64_t bad) : images_{images, DType::f64}, bad_{bad} {}
    std::int64_t count() const override { return images_.count(); }
    SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
      return images_.make_batch(capacity, stream);
    }
    void fill(std::span<const std::int64_t> samples, SampleBatch& batch) const override {
      if (std::ranges::count(samples, bad_) > 0) throw std::runtime_error{"no such sample"};
      images_.fill(samples, batch);
    }

   private:
    ImageSamples images_;
    std::int64_t bad_;
  };
  const ImageData data = images(10);
  const auto weights_of = [&](FitOptions options, int prefetch, std::int64_t bad) -> std::string {
    options.prefetch = prefetch;
    const Damaged source{data.train, bad};
    const ImageSamples test{data.test, DType::f64};
    try {
      return fmt::format("{}", fmt::join(train({source, test}, options, 3, column_sums).weights, " "));
    } catch (const std::runtime_error& error) {
      return fmt::format("{} {}", error.what(), bad);
    }
  };
  for (const int micro_batches : {1, 2}) {
    // Epochs of 4, 4 and 2 samples, which leave shards without any.
    const FitOptions options{
        .global_batch = 4, .steps = 7, .shards = 4, .accumulate = micro_batches, .start = Observer::State{.steps = 1}};
    const std::string expected = weights_of(options, 0, -1);
    for (const int prefetch : {1, 2, 20}) CHECK(weights_of(options, prefetch, -1) == expected);
  }
  CHECK(weights_of({.global_batch = 4, .steps = 3, .shards = 1}, 2, 6) == "no such sample 6");

  CHECK_THROWS_WITH(train(data, {.global_batch = 8, .prefetch = -1}, 3, column_sums),
                    "batches to prefetch: -1, expected 0 or more");
}
