// A model whose passes are timed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "apps/lockstep-bench/step_clock.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_sums.hpp"

namespace lockstep::bench {

/// Forwards to another model and tells the clock: forward or backward during its passes, optimizer after the last pass,
/// and other after statistics are absorbed, which `fit` asks of every model. With several threads, only the first is
/// timed; its wait for the others counts as optimizer. On a GPU each pass ends when the GPU is done, so a step waits
/// once more than in a training.
class TimedModel final : public nn::Model, private nn::JointModel, private nn::ReadyListener {
 public:
  /// Becomes the observer of the model's passes. Model and clock must outlive it.
  TimedModel(nn::Model& model, StepClock& clock);
  ~TimedModel() override;

  std::string_view name() const override { return model_.name(); }
  std::span<const Variable> variables() const override { return model_.variables(); }
  /// Not timed: `fit` asks for single shards only when it accumulates.
  BatchLoss train_shard(const SampleBatch& shard, const nn::Model::ShardPlace& place,
                        const nn::GradientBuffer& gradients) override {
    return model_.train_shard(shard, place, gradients);
  }
  BatchLoss train_shards(const SampleBatch::Group& shards, std::span<const nn::Model::ShardPlace> places,
                         const nn::GradientBuffer& sum) override;
  std::unique_ptr<nn::Model> make_worker() const override { return model_.make_worker(); }
  nn::JointModel* joint() override { return inside(model_).joint() ? this : nullptr; }
  BatchLoss evaluate_shard(const SampleBatch& shard) override { return model_.evaluate_shard(shard); }
  std::int64_t statistics() const override { return model_.statistics(); }
  std::vector<SyncOnReadVariable> moving_averages() const override { return model_.moving_averages(); }
  void absorb_statistics(const TensorView& total, std::int64_t samples) override;

  /// When the gradients were ready in the backward passes of `train_shards`, from 0, the beginning of a pass, to 1, its
  /// end: of each, in the order of memory, the median over the steps.
  std::vector<double> ready_moments() const;

 private:
  std::vector<std::int64_t> joint_sums() const override { return inside(model_).joint()->joint_sums(); }
  Losses train_jointly(const nn::JointBatch& batch, std::span<const nn::GradientBuffer> gradients,
                       DeclaredSums& ranks) override;

  void on_ready(std::size_t variable) override;

  nn::Model& model_;
  StepClock& clock_;
  const nn::GradientBuffer* sum_ = nullptr;         ///< during `train_shards`
  std::vector<std::chrono::nanoseconds> ready_;     ///< of each gradient, since the last pass began
  std::vector<std::vector<double>> ready_moments_;  ///< of each gradient, by step
};

}  // namespace lockstep::bench
