// Trains a model with a loss of its own on padded sequences: mpirun -n 2 sequences [CHECKPOINT [RUN_FOLDER]]
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <lockstep/models.hpp>

using namespace lockstep;

namespace {

constexpr std::int64_t longest = 16;

/// Sequences in which x[t] = 1.6 x[t-1] - 0.8 x[t-2] + 0.1. They have 3 to 16 numbers, and zeros after them.
class Sequences final : public SampleSource {
 public:
  Sequences(std::int64_t count, std::uint64_t seed) : count_{count}, seed_{seed} {}

  std::int64_t count() const override { return count_; }
  std::int64_t labels_per_sample() const override { return longest; }

  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    // A label is what comes next, and its weight: 1, or 0 for the first two numbers and for padding.
    return {.inputs = Tensor::pinned(DType::f32, {capacity, longest}, stream),
            .labels = Tensor::pinned(DType::f32, {capacity, longest, 2}, stream)};
  }

  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    const auto inputs = batch.inputs.view().elements<float>(), labels = batch.labels.view().elements<float>();
    std::ranges::fill(inputs, 0.0F);
    std::ranges::fill(labels, 0.0F);
    for (std::size_t row = 0; row < sample_indices.size(); ++row) {
      // The number of the sample decides its content, on whichever rank it is loaded.
      const RandomStream random{seed_, RandomStream::Purpose::simulation,
                                static_cast<std::uint64_t>(sample_indices[row])};
      const auto length = static_cast<std::size_t>(3 + random.below(longest - 2, 0));
      float* const x = &inputs[row * longest];
      x[0] = static_cast<float>(random.uniform(1));
      x[1] = static_cast<float>(random.uniform(2));
      for (std::size_t t = 2; t < length; ++t) {
        x[t] = 1.6F * x[t - 1] - 0.8F * x[t - 2] + 0.1F;
        float* const label = &labels[(row * longest + t) * 2];
        label[0] = x[t];
        label[1] = 1;
      }
    }
    batch.samples = static_cast<std::int64_t>(sample_indices.size());
  }

 private:
  std::int64_t count_;
  std::uint64_t seed_;
};

/// Predicts a number from the two before it. The loss is half the squared error, times the label's weight.
class Predictor final : public nn::Model {
 public:
  explicit Predictor(Strategy& strategy)
      : variables_{strategy.create_variable({.name = "coefficients"}, [] { return Tensor::zeros(DType::f32, {3}); })} {}

  std::string_view name() const override { return "predictor"; }
  std::span<const Variable> variables() const override { return variables_; }

  BatchLoss train_shard(const SampleBatch& shard, const ShardPlace&, const nn::GradientBuffer& gradients) override {
    return pass(shard, gradients.of(variables_.front()).elements<float>());
  }
  BatchLoss evaluate_shard(const SampleBatch& shard) override {
    std::vector<float> unused(3);
    return pass(shard, unused);
  }

 private:
  /// Overwrites `gradient` with the sum over the labels of the samples present.
  BatchLoss pass(const SampleBatch& shard, std::span<float> gradient) const {
    const auto w = variables_.front().local().elements<float>();
    const auto inputs = shard.inputs.view().elements<float>(), labels = shard.labels.view().elements<float>();
    BatchLoss result{.weight = 0};
    std::ranges::fill(gradient, 0.0F);
    for (std::size_t row = 0; row < static_cast<std::size_t>(shard.samples); ++row) {
      for (std::size_t t = 2; t < longest; ++t) {
        const std::size_t at = row * longest + t;
        const float before[] = {inputs[at - 1], inputs[at - 2], 1}, weight = labels[2 * at + 1];
        const float error = w[0] * before[0] + w[1] * before[1] + w[2] - labels[2 * at];
        for (std::size_t i = 0; i < 3; ++i) gradient[i] += weight * error * before[i];
        result.loss_sum += weight * error * error / 2;
        *result.weight += weight;
      }
    }
    return result;
  }

  std::vector<Variable> variables_;
};

/// Prints each evaluation on the chief, and saves a checkpoint on all ranks.
class Watcher final : public Observer {
 public:
  Watcher(Strategy& strategy, std::filesystem::path checkpoint)
      : strategy_{strategy}, checkpoint_{std::move(checkpoint)} {}

  void on_evaluation(const Evaluation& report) override {
    if (strategy_.rank() == 0) std::printf("epoch %d: loss %.9f\n", static_cast<int>(report.epoch), report.loss);
    if (!checkpoint_.empty()) save_checkpoint(strategy_, checkpoint_);  // a collective: every rank calls it
  }

 private:
  Strategy& strategy_;
  std::filesystem::path checkpoint_;
};

void train(Runtime& runtime, const std::filesystem::path& checkpoint, const std::filesystem::path& folder) {
  Strategy& strategy = runtime.strategy();
  const Sequences train{1000, 1}, test{200, 2};
  Predictor model{strategy};
  AdamW adamw{{.learning_rate = LearningRate{{.peak = 0.1, .decay_steps = 320}}}};
  Watcher watcher{strategy, checkpoint};
  RunRecord record{strategy, {.folder = folder, .next = &watcher}};
  fit(strategy, model, adamw, {train, test}, {.global_batch = 32, .steps = 320}, record);
  record.finish();
  if (!runtime.is_chief()) return;
  const auto w = model.variables().front().local().elements<float>();
  std::printf("x[t] = %.3f x[t-1] %+.3f x[t-2] %+.3f, weights %s\n", w[0], w[1], w[2],
              to_hex(weights_digest({model.variables().front()})).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) { train(runtime, argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : ""); });
}
