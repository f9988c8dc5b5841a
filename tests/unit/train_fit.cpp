// Which samples a step's shards and micro-batches get, and in which order what they give is added up.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/input/sample_order.hpp>
#include <lockstep/optim/sgd.hpp>
#include <lockstep/train/fit.hpp>

using namespace lockstep;

namespace {

/// What a model sees of one call.
struct Seen {
  std::int64_t capacity;
  std::vector<std::int32_t> labels;
  nn::ShardPlace place;
};

/// What it is told of a step.
struct Absorbed {
  std::vector<double> total;
  std::int64_t samples;
};

std::span<const std::int32_t> labels_in(const SampleBatch& batch) {
  return batch.labels.view().elements<std::int32_t>().first(static_cast<std::size_t>(batch.counted_labels()));
}

/// One variable of f64, whose gradient is what `gradient` says of each call. Its statistics are the labels of the
/// samples and their squares.
class ScriptedModel final : public nn::Model {
 public:
  using Script = std::function<std::vector<double>(std::size_t call, const SampleBatch& batch)>;

  ScriptedModel(Strategy& strategy, std::int64_t size, Script gradient)
      : gradient_{std::move(gradient)}, variables_{strategy.create_variable({.name = "w"}, [&] {
          return Tensor::zeros(DType::f64, {size});
        })} {}

  std::string_view name() const override { return "scripted"; }
  std::span<const Variable> variables() const override { return variables_; }

  ops::BatchLoss train_shard(const SampleBatch& batch, const nn::ShardPlace& place,
                             const nn::GradientBuffer& gradients) override {
    const auto labels = labels_in(batch);
    const std::vector<double> gradient = gradient_(seen.size(), batch);
    std::ranges::copy(gradient, gradients.of(variables_.front()).elements<double>().begin());
    seen.push_back({batch.inputs.shape()[0], {labels.begin(), labels.end()}, place});
    double loss = 0, squares = 0;
    for (const std::int32_t label : labels) {
      loss += label;
      squares += label * label;
    }
    std::ranges::copy(std::array{loss, squares}, gradients.statistics().elements<double>().begin());
    return {.loss_sum = loss, .correct = batch.samples};
  }
  std::int64_t statistics() const override { return 2; }
  void absorb_statistics(const TensorView& total, std::int64_t samples) override {
    absorbed.push_back({total.to_vector<double>(), samples});
  }
  ops::BatchLoss evaluate_shard(const SampleBatch& batch) override {
    const auto labels = labels_in(batch);
    evaluated.push_back(batch.samples);
    return {.loss_sum = std::accumulate(labels.begin(), labels.end(), 0.0),
            .correct = std::ranges::count_if(labels, [](std::int32_t label) { return label % 2 == 0; })};
  }

  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;
  std::vector<std::int64_t> evaluated;  ///< samples of each shard

 private:
  Script gradient_;
  std::vector<Variable> variables_;
};

/// As ScriptedModel, but its labels are masked: those that 3 divides weigh nothing, even ones 1, odd ones a half. What
/// weighs something has a loss of 1 and, in evaluations, is predicted. The gradient is the number of such labels.
class MaskedModel final : public nn::Model {
 public:
  explicit MaskedModel(Strategy& strategy)
      : variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {1}); })} {}

  std::string_view name() const override { return "masked"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::BatchLoss train_shard(const SampleBatch& batch, const nn::ShardPlace&,
                             const nn::GradientBuffer& gradients) override {
    const ops::BatchLoss result = evaluate_shard(batch);
    gradients.of(variables_.front()).elements<double>()[0] = result.loss_sum;
    return result;
  }
  ops::BatchLoss evaluate_shard(const SampleBatch& batch) override {
    ops::BatchLoss result{.weight = 0};
    for (const std::int32_t label : labels_in(batch)) {
      if (label % 3 == 0) continue;
      result.loss_sum += 1;
      *result.weight += label % 2 == 0 ? 1 : 0.5;
      ++result.correct;
    }
    return result;
  }

 private:
  std::vector<Variable> variables_;
};

class Losses final : public Observer {
 public:
  std::vector<double> losses;
  std::vector<std::int64_t> samples, evaluations_left;
  int evaluations_told = 0;
  void on_step(const StepReport& report) override {
    losses.push_back(report.loss);
    samples.push_back(report.samples);
    evaluations_left.push_back(report.evaluations_left);
  }
  void on_evaluating(const EvaluationProgress&) override { ++evaluations_told; }
  void on_evaluation(const EvaluationReport&) override { ++evaluations_told; }
};

/// `count` images of three pixels, black or white, each with a label of its own.
ImageData images(int count) {
  ImageData data;
  data.train.rows = data.test.rows = 1;
  data.train.columns = data.test.columns = 3;
  for (int i = 0; i < count; ++i) {
    for (const int pixel : {i % 2, i / 2 % 2, i / 4 % 2})
      data.train.pixels.push_back(static_cast<std::uint8_t>(255 * pixel));
    data.train.labels.push_back(static_cast<std::uint8_t>(i));
  }
  data.test.pixels.assign(3, 0);
  data.test.labels.assign(1, 0);
  return data;
}

/// Bytes of no pattern, in so many windows.
TextSet text(std::int64_t windows, std::int64_t context) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i <= windows * context; ++i) bytes.push_back(static_cast<std::uint8_t>(i * i % 251));
  return {tokens_of_text(std::move(bytes)), context};
}

/// The first so many labels of a text.
std::vector<std::int32_t> labels_of(const TextSet& text, std::int64_t count) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  text.tokens->read(1, labels);
  return labels;
}

/// Seven samples, whose labels are the numbers under which they are asked for.
class NumberedSamples final : public SampleSource {
 public:
  std::int64_t count() const override { return 7; }
  bool varies_by_epoch() const override { return true; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, 3, DType::f64, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    std::ranges::copy(sample_indices, batch.labels.view().elements<std::int32_t>().begin());
    batch.samples = std::ssize(sample_indices);
  }
};

struct Trained {
  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;
  std::vector<std::int64_t> evaluated;
  std::vector<double> losses;
  std::vector<std::int64_t> samples, evaluations_left;
  int evaluations_told;
  std::vector<double> weights;
  FitResult result;
};

Trained train(const TrainingSamples& data, const FitOptions& options, std::int64_t size,
              ScriptedModel::Script gradient) {
  const auto group = make_local_group();
  Strategy strategy{*group};
  ScriptedModel model{strategy, size, std::move(gradient)};
  Sgd sgd{{.learning_rate = 1}};
  Losses observer;
  const FitResult result = fit(strategy, model, sgd, data, options, observer);
  return {model.seen,
          model.absorbed,
          model.evaluated,
          observer.losses,
          observer.samples,
          observer.evaluations_left,
          observer.evaluations_told,
          model.variables().front().local().to_vector<double>(),
          result};
}

Trained train(const ImageData& data, const FitOptions& options, std::int64_t size, ScriptedModel::Script gradient) {
  const ImageSamples train_samples{data.train, DType::f64}, test_samples{data.test, DType::f64};
  return train({train_samples, test_samples}, options, size, std::move(gradient));
}

Trained train(const TextSet& train_text, const TextSet& test_text, const FitOptions& options) {
  const TextSamples train_samples{train_text}, test_samples{test_text};
  return train({train_samples, test_samples}, options, 1,
               [](std::size_t, const SampleBatch& batch) -> std::vector<double> {
                 const auto labels = labels_in(batch);
                 return {std::accumulate(labels.begin(), labels.end(), 0.0)};
               });
}

/// The sums of the inputs' columns: exact, so that they do not depend on an order.
std::vector<double> column_sums(std::size_t, const SampleBatch& batch) {
  std::vector<double> sums(3);
  const auto inputs = batch.inputs.view().elements<double>();
  for (std::size_t i = 0; i < inputs.size(); ++i) sums[i % 3] += inputs[i];
  return sums;
}

std::vector<std::int32_t> labels_of(const std::vector<Seen>& seen) {
  std::vector<std::int32_t> all;
  for (const Seen& each : seen) all.insert(all.end(), each.labels.begin(), each.labels.end());
  return all;
}

}  // namespace

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
  options.start.steps = 3;
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

TEST_CASE("an evaluation of a text is by the label, with bits per byte; one of images has none of these") {
  const TextSet test = text(5, 4);
  const EvaluationReport report =
      train(text(8, 4), test, {.global_batch = 8, .steps = 1, .shards = 4}).result.last_evaluation;
  double sum = 0, even = 0;
  for (const std::int32_t label : labels_of(test, 20)) {
    sum += label;
    even += label % 2 == 0;
  }
  CHECK(report.loss == sum / 20);
  CHECK(report.accuracy == even / 20);
  CHECK(report.bits_per_byte.value() == sum / 20 / std::numbers::ln2);
  const FitOptions one{.global_batch = 8, .steps = 1, .shards = 1};
  CHECK_FALSE(train(images(8), one, 3, column_sums).result.last_evaluation.bits_per_byte);
}

TEST_CASE("losses, gradients and evaluations are divided by what the labels weigh, if the model says it") {
  const int micro_batches = GENERATE(1, 2);
  const auto group = make_local_group();
  Strategy strategy{*group};
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

TEST_CASE("an evaluation takes 1024 labels at a time, or a sample a shard where that is more") {
  const FitOptions options{.global_batch = 1, .steps = 1, .shards = 4};
  using Sizes = std::vector<std::int64_t>;
  CHECK(train(text(1, 128), text(11, 128), options).evaluated == Sizes{2, 2, 2, 2, 0, 1, 1, 1});
  CHECK(train(text(1, 300), text(6, 300), options).evaluated == Sizes{1, 1, 1, 1, 0, 1, 0, 1});
  CHECK(train(text(1, 2000), text(4, 2000), options).evaluated == Sizes{1, 1, 1, 1});
}

TEST_CASE("an evaluation may take the first samples alone, and each step knows how many are to come") {
  const TextSet test = text(11, 4);
  const Trained trained = train(
      text(1, 4), test, {.global_batch = 1, .steps = 5, .shards = 4, .evaluate_every = 2, .evaluation_samples = 3});
  CHECK(trained.evaluations_left == std::vector<std::int64_t>{3, 3, 2, 2, 1});
  CHECK(std::accumulate(trained.evaluated.begin(), trained.evaluated.end(), std::int64_t{0}) == 9);
  CHECK(trained.result.last_evaluation.samples == 3);
  const std::vector<std::int32_t> labels = labels_of(test, 12);
  CHECK(trained.result.last_evaluation.loss == std::accumulate(labels.begin(), labels.end(), 0.) / 12);
  const FitOptions more{.global_batch = 1, .steps = 1, .shards = 4, .evaluation_samples = 100};
  CHECK(train(text(1, 4), test, more).result.last_evaluation.samples == 11);
}

TEST_CASE("a run that goes on after its last step only evaluates, and tells nobody") {
  const FitOptions options{.global_batch = 4, .steps = 3, .shards = 1, .start = {.steps = 3, .recent = {{6, 4}}}};
  const Trained trained = train(images(8), options, 3, column_sums);
  CHECK(trained.seen.empty());
  CHECK(trained.losses.empty());
  CHECK(trained.evaluated == std::vector<std::int64_t>{1});
  CHECK(trained.evaluations_told == 0);
  CHECK(trained.result.last_evaluation.step == 3);
  CHECK(trained.result.samples == 12);
  CHECK(trained.result.train_loss == 1.5);
}

TEST_CASE("what goes wrong in a fit is told with its step or its evaluation, and what goes wrong after it is not") {
  struct Evaluations final : Observer {
    bool fail = false;
    void on_step(const StepReport&) override {}
    void on_evaluating(const EvaluationProgress&) override {
      if (fail) throw std::runtime_error{"in an evaluation"};
    }
    void on_evaluation(const EvaluationReport&) override {}
  };
  /// The line about a failure in the fit, if there is one, and that about a run after it.
  const auto lines_of = [](std::optional<std::size_t> bad_call, bool evaluations_fail) {
    const auto group = make_local_group();
    Strategy strategy{*group};
    ScriptedModel model{strategy, 1, [&](std::size_t call, const SampleBatch&) {
                          if (call == bad_call) throw std::runtime_error{"in a step"};
                          return std::vector{0.0};
                        }};
    Sgd sgd{{.learning_rate = 1}};
    Evaluations evaluations;
    evaluations.fail = evaluations_fail;
    const TextSet set = text(8, 5);
    const TextSamples samples{set};
    const FitOptions options{.global_batch = 2, .steps = 3, .shards = 1, .evaluate_every = 2};
    const auto line_of = [&](const auto& program) -> std::string {
      try {
        program();
        return "none";
      } catch (const std::runtime_error&) {
        return group->meeting().failure()->line;
      }
    };
    const std::string in_fit = line_of([&] { fit(strategy, model, sgd, {samples, samples}, options, evaluations); });
    const auto fail = [](ReplicaContext&) { throw std::runtime_error{"in another run"}; };
    return std::pair{in_fit, line_of([&] { strategy.run(fail); })};
  };
  const auto told = [](const std::string& where) { return Catch::Contains(where + ", computing (train_fit.cpp:"); };
  const auto [in_step, after_step] = lines_of(1, false);
  CHECK_THAT(in_step, told("in a step; this was in step 2"));
  CHECK_THAT(after_step, told("in another run; this was in step 3"));
  const auto [in_evaluation, after_evaluation] = lines_of({}, true);
  CHECK_THAT(in_evaluation, told("in an evaluation; this was in the evaluation after step 2"));
  CHECK_THAT(after_evaluation, told("in another run; this was in step 4"));
  const auto [nowhere, after] = lines_of({}, false);
  CHECK(nowhere == "none");
  CHECK_THAT(after, told("in another run; this was in step 6"));  // three steps and two evaluations were runs before
}

TEST_CASE("an only shard is accumulated where its gradient belongs") {
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 1, .accumulate = 4};
  const Trained trained = train(images(8), options, 1, [](std::size_t call, const SampleBatch&) -> std::vector<double> {
    return {static_cast<double>(call + 1)};
  });
  CHECK(trained.weights[0] == -10. / 8);
}

TEST_CASE("no micro-batches at all are refused") {
  const FitOptions options{.global_batch = 8, .steps = 1, .shards = 1, .accumulate = 0};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums), "micro-batches of a shard: 0, expected at least 1");
}

TEST_CASE("batches loaded ahead are those of their steps, from the first to go on with, and fail in their own step") {
  /// Images, of which one cannot be read.
  class Damaged final : public SampleSource {
   public:
    Damaged(const ImageSet& images, std::int64_t bad) : images_{images, DType::f64}, bad_{bad} {}
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
        .global_batch = 4, .steps = 7, .shards = 4, .accumulate = micro_batches, .start = {.steps = 1}};
    const std::string expected = weights_of(options, 0, -1);
    for (const int prefetch : {1, 2, 20}) CHECK(weights_of(options, prefetch, -1) == expected);
  }
  CHECK(weights_of({.global_batch = 4, .steps = 3, .shards = 1}, 2, 6) == "no such sample 6");

  CHECK_THROWS_WITH(train(data, {.global_batch = 8, .prefetch = -1}, 3, column_sums),
                    "batches to prefetch: -1, expected 0 or more");
}

TEST_CASE("a frozen variable that the model does not have is refused, and freezing all of them") {
  FitOptions options{.global_batch = 4};
  options.frozen = {"v"};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums), "frozen variable 'v': the model has none of this name");
  options.frozen = {"w"};
  CHECK_THROWS_WITH(train(images(8), options, 3, column_sums),
                    Catch::Contains("every variable of the model is frozen"));
}

TEST_CASE("the state of a training is the same when it was a text") {
  const FitState state{.steps = 123456789012345,
                       .recent = {{0.1, 256}, {-1e-300, 0}, {std::numeric_limits<double>::infinity(), 3}}};
  const FitState again = parse_fit_state(to_text(state));
  CHECK(again.steps == state.steps);
  REQUIRE(again.recent.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(again.recent[i].loss == state.recent[i].loss);
    CHECK(again.recent[i].weight == state.recent[i].weight);
  }
  CHECK(std::isnan(parse_fit_state(to_text({.steps = 1, .recent = {{std::nan(""), 1}}})).recent.front().loss));
  CHECK(parse_fit_state("7").recent.empty());
  for (const char* wrong : {"", "x", "1 2", "1 2 x", "1 2 3x", "1.5 2 3"})
    CHECK_THROWS_WITH(parse_fit_state(wrong), Catch::Contains("not the state of a training"));
}
