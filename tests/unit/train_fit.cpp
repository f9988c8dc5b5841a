// Which samples a step's shards and micro-batches get, and in which order what they give is added up.
#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
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

  ops::CrossEntropy train_shard(const SampleBatch& batch, const nn::ShardPlace& place,
                                const nn::GradientBuffer& gradients) override {
    const auto labels = batch.labels.view().elements<std::int32_t>().first(static_cast<std::size_t>(batch.samples));
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
  ops::CrossEntropy evaluate_shard(const SampleBatch&) override { return {}; }

  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;

 private:
  Script gradient_;
  std::vector<Variable> variables_;
};

class Losses final : public Observer {
 public:
  std::vector<double> losses;
  void on_step(const StepReport& report) override { losses.push_back(report.loss); }
  void on_evaluation(const EvaluationReport&) override {}
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

struct Trained {
  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;
  std::vector<double> losses;
  std::vector<double> weights;
};

Trained train(const ImageData& data, const FitOptions& options, std::int64_t size, ScriptedModel::Script gradient) {
  const auto group = make_local_group();
  Strategy strategy{*group};
  ScriptedModel model{strategy, size, std::move(gradient)};
  Sgd sgd{{.learning_rate = 1}};
  Losses observer;
  const ImageSamples train{data.train, DType::f64}, test{data.test, DType::f64};
  fit(strategy, model, sgd, {train, test}, options, observer);
  return {model.seen, model.absorbed, observer.losses, model.variables().front().local().to_vector<double>()};
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
