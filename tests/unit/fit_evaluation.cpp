// What a fit evaluates, when, and in which pieces.
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "fit_models.hpp"
#include "models/input/batches.hpp"
#include "models/input/text_sets.hpp"
#include "models/nn/mlp.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Six samples: the number i, with the label slope * i + offset in units of 2.
class Labelled final : public SampleSource {
 public:
  Labelled(double slope, double offset) : slope_{slope}, offset_{offset} {}

  std::int64_t count() const override { return 6; }
  double label_unit() const override { return 2; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    SampleBatch batch = lockstep::make_batch(capacity, 1, DType::f64, stream);
    batch.labels = Tensor::zeros(DType::f64, {capacity});
    return batch;
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    const auto inputs = batch.inputs.view().elements<double>(), labels = batch.labels.view().elements<double>();
    std::ranges::fill(inputs, 0);
    for (std::size_t row = 0; row < sample_indices.size(); ++row) {
      inputs[row] = static_cast<double>(sample_indices[row]);
      labels[row] = slope_ * inputs[row] + offset_;
    }
    batch.samples = std::ssize(sample_indices);
  }

 private:
  double slope_, offset_;
};

}  // namespace

TEST_CASE("an evaluation of numbers has R squared and the mean absolute error in the data's unit") {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  nn::Mlp model{
      strategy,
      {.inputs = 1, .hidden = {}, .classes = 1, .dtype = DType::f64, .loss = nn::MlpOptions::Loss::squared_error},
      ops::make_kernels(ops::Kernels::Choice::reference)};
  strategy.seal();
  model.variables()[0].assign(Tensor::from({2.0}, {1, 1}));
  model.variables()[1].assign(Tensor::from({4.0}, {1}));
  Sgd still{{.learning_rate = 1e-300}};
  const Labelled samples{3, 1};
  Losses nobody;
  const Observer::Evaluation report =
      fit(strategy, model, still, {samples, samples}, {.global_batch = 6, .steps = 1, .shards = 4}, nobody)
          .last_evaluation;
  // Of 2 i + 4 for 3 i + 1, the errors are 3, 2, 1, 0, -1, -2; the labels' squared distances from their mean, 9 * 17.5.
  CHECK(report.loss == Approx(19. / 6).epsilon(1e-14));
  CHECK(*report.r_squared == Approx(1 - 19 / 157.5).epsilon(1e-14));
  CHECK(*report.mean_absolute_error == Approx(2 * 9. / 6).epsilon(1e-14));

  // Sums of these squares leave a rest that is no spread.
  for (const double label : {0.1, 5000.1}) {
    const Labelled equal{0, label};
    CHECK(std::isnan(fit(strategy, model, still, {equal, equal}, {.global_batch = 6, .steps = 1, .shards = 4}, nobody)
                         .last_evaluation.r_squared.value()));
  }
}

TEST_CASE("an evaluation of a text is by the label, with bits per byte; one of images has none of these") {
  const TextSet test = text(5, 4);
  const Observer::Evaluation report =
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
  const Observer::Evaluation of_images = train(images(8), one, 3, column_sums).result.last_evaluation;
  CHECK_FALSE(of_images.bits_per_byte);
  CHECK_FALSE(of_images.r_squared);
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
  const FitOptions options{
      .global_batch = 4, .steps = 3, .shards = 1, .start = Observer::State{.steps = 3, .recent = {{6, 4}}}};
  const Trained trained = train(images(8), options, 3, column_sums);
  CHECK(trained.seen.empty());
  CHECK(trained.losses.empty());
  CHECK(trained.evaluated == std::vector<std::int64_t>{1});
  CHECK(trained.evaluations_told == 0);
  CHECK(trained.result.last_evaluation.step == 3);
  CHECK(trained.result.samples == 12);
  CHECK(trained.result.train_loss == 1.5);
}
