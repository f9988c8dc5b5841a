// The same bits on every number of ranks, and other bits as soon as anything that they stand on is not as it should be:
// the test of the promise can fail.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/base/digest.hpp"
#include "models/input/samples.hpp"
#include "models/nn/convnet.hpp"

using namespace lockstep;

namespace {

constexpr int shards = 8;
constexpr std::int64_t global_batch = 16, image_size = 8;

/// What is done to a rank's shards on their way to the model.
enum class Disturbance {
  none,
  swapped_shards,   ///< the first and the third change places in the tree; neighbours could, as a + b is b + a
  shifted_samples,  ///< each sample stands where the next one should, the last one in front
  rank_in_numbers,  ///< the rank has a say in the place that random numbers depend on
};

/// Each row takes the place of the next one, the last one that of the first.
template <class T>
void rotate_rows(const Tensor& rows) {
  const auto elements = rows.view().elements<T>();
  std::rotate(elements.begin(), elements.end() - rows.count() / rows.shape().front(), elements.end());
}

std::uint64_t digest_of(std::span<const Variable> variables) {
  Digest digest;
  for (const Variable& variable : variables) digest.update({variable.local().data(), variable.local().bytes()});
  return digest.value();
}

/// A small convnet with dropout, and one disturbance.
class DisturbedModel final : public nn::Model {
 public:
  DisturbedModel(Strategy& strategy, Disturbance disturbance, int rank)
      : model_{strategy,
               {.height = image_size,
                .width = image_size,
                .filters = {3, 4},
                .hidden = 9,
                .classes = 5,
                .dropout = 0.5},
               ops::make_kernels(ops::Kernels::Choice::automatic)},
        disturbance_{disturbance},
        rank_{rank} {}

  std::string_view name() const override { return "disturbed"; }
  std::span<const Variable> variables() const override { return model_.variables(); }
  BatchLoss train_shard(const SampleBatch& shard, const nn::Model::ShardPlace& place,
                        const nn::GradientBuffer& gradients) override {
    return model_.train_shard(shard, place, gradients);
  }
  BatchLoss train_shards(const SampleBatch::Group& group, std::span<const nn::Model::ShardPlace> places,
                         const nn::GradientBuffer& sum) override {
    SampleBatch::Group disturbed = group;
    std::vector<nn::Model::ShardPlace> disturbed_places{places.begin(), places.end()};
    switch (disturbance_) {
      case Disturbance::none: break;
      case Disturbance::swapped_shards:
        std::swap(disturbed.batches.at(0), disturbed.batches.at(2));
        std::swap(disturbed_places.at(0), disturbed_places.at(2));
        break;
      case Disturbance::shifted_samples:
        rotate_rows<float>(group.inputs);
        rotate_rows<std::int32_t>(group.labels);
        break;
      case Disturbance::rank_in_numbers:
        for (nn::Model::ShardPlace& place : disturbed_places) place.first_sample += rank_;
        break;
    }
    return model_.train_shards(disturbed, disturbed_places, sum);
  }
  BatchLoss evaluate_shard(const SampleBatch& shard) override { return model_.evaluate_shard(shard); }

 private:
  nn::Convnet model_;
  Disturbance disturbance_;
  int rank_;
};

/// Fits the label of an image by its first pixels. The first batch of a step weighs 1, and each other one half of what
/// 1 can be increased by: one by one they would be lost, but not as a tree.
class WeighingModel final : public nn::Model {
 public:
  explicit WeighingModel(Strategy& strategy)
      : variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {3}); })} {}

  std::string_view name() const override { return "weighing"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& shard, const nn::Model::ShardPlace& place,
                        const nn::GradientBuffer& gradients) override {
    const std::span<float> gradient = gradients.of(variables_.front()).elements<float>();
    std::ranges::fill(gradient, 0.0F);
    ops::Kernels::BatchLoss result = pass(shard, gradient);
    result.weight = place.first_sample == 0 ? 1 : 0x1p-53;
    return result;
  }
  BatchLoss evaluate_shard(const SampleBatch& shard) override { return pass(shard, {}); }

 private:
  ops::Kernels::BatchLoss pass(const SampleBatch& shard, std::span<float> gradient) const {
    const auto w = variables_.front().local().elements<float>(), x = shard.inputs.view().elements<float>();
    const auto labels = shard.labels.view().elements<std::int32_t>();
    const auto features = static_cast<std::size_t>(shard.inputs.shape()[1]);
    ops::Kernels::BatchLoss result{.weight = 0};
    for (std::size_t row = 0; row < static_cast<std::size_t>(shard.samples); ++row) {
      const float* const own = &x[row * features];
      const float weight = 0.1F + own[3],
                  error = w[0] * own[0] + w[1] * own[1] + w[2] * own[2] - static_cast<float>(labels[row]);
      result.loss_sum += weight * error * error / 2;
      *result.weight += 0.1 + 1.0 / 3 * own[3];
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += weight * error * own[i];
    }
    return result;
  }

  std::vector<Variable> variables_;
};

ImageData some_images() {
  const RandomStream random{5, RandomStream::Purpose::simulation, 0};
  ImageData data;
  for (ImageData::Set* set : {&data.train, &data.test}) {
    set->rows = set->columns = image_size;
    const std::size_t images = 3 * global_batch;
    for (std::size_t i = 0; i < images * image_size * image_size; ++i)
      set->pixels.push_back(static_cast<std::uint8_t>(random.below(256, i)));
    for (std::size_t i = 0; i < images; ++i) set->labels.push_back(static_cast<std::uint8_t>(i % 5));
  }
  return data;
}

/// The digest of the weights after three steps, the same on all ranks.
std::uint64_t digest_of_training(int ranks, Disturbance disturbance) {
  const ImageData data = some_images();
  const ImageSamples train{data.train, DType::f32}, test{data.test, DType::f32};
  std::vector<std::uint64_t> digests;
  sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
    DisturbedModel model{strategy, disturbance, rank};
    Sgd sgd{{.learning_rate = 0.1}};
    Observer observer;
    fit(strategy, model, sgd, {train, test}, {.global_batch = global_batch, .steps = 3, .shards = shards}, observer);
    digests.push_back(digest_of(model.variables()));
  });
  REQUIRE(std::ssize(digests) == ranks);
  CHECK(std::ranges::count(digests, digests.front()) == ranks);
  return digests.front();
}

/// The weights after three steps and the last losses, all of them with all bits.
std::vector<double> numbers_of_weighing(int ranks, int accumulate, int shards_of_step = shards) {
  const ImageData data = some_images();
  const ImageSamples train{data.train, DType::f32}, test{data.test, DType::f32};
  std::vector<double> numbers;
  sim::run({.ranks = ranks}, [&](Strategy& strategy, int rank) {
    WeighingModel model{strategy};
    Sgd sgd{{.learning_rate = 0.01}};
    Observer observer;
    const FitResult result =
        fit(strategy, model, sgd, {train, test},
            {.global_batch = global_batch, .steps = 3, .shards = shards_of_step, .accumulate = accumulate}, observer);
    if (rank != 0) return;
    for (const float each : model.variables().front().local().to_vector<float>()) numbers.push_back(each);
    numbers.insert(numbers.end(), {result.train_loss, result.last_evaluation.loss});
  });
  return numbers;
}

}  // namespace

TEST_CASE("any number of shards gives the same bits on any number of ranks, and another number others") {
  const std::vector<double> on_one = numbers_of_weighing(1, 1, 12);
  for (const int ranks : {2, 3, 4, 5, 7, 11}) {
    CAPTURE(ranks);
    CHECK(numbers_of_weighing(ranks, 1, 12) == on_one);
  }
  CHECK(numbers_of_weighing(1, 1, 11) != on_one);
}

TEST_CASE("what labels weigh is added up in the fixed order too") {
  const int accumulate = GENERATE(1, 2);
  const std::vector<double> on_one = numbers_of_weighing(1, accumulate);
  for (const int ranks : {2, 4, 5, 8}) {
    CAPTURE(ranks);
    CHECK(numbers_of_weighing(ranks, accumulate) == on_one);
  }
}

TEST_CASE("a training has the same bits on every number of ranks, and others where its order is broken") {
  const std::uint64_t untouched = digest_of_training(1, Disturbance::none);
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    CHECK(digest_of_training(ranks, Disturbance::none) == untouched);
  }
  for (const int ranks : {1, 2}) {
    CAPTURE(ranks);
    CHECK(digest_of_training(ranks, Disturbance::swapped_shards) != untouched);
    CHECK(digest_of_training(ranks, Disturbance::shifted_samples) != untouched);
  }
  CHECK(digest_of_training(1, Disturbance::rank_in_numbers) == untouched);  // of rank 0, which adds nothing
  for (const int ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    CHECK(digest_of_training(ranks, Disturbance::rank_in_numbers) != untouched);
  }
}
