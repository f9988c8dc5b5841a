// What a rank computes in a step: the gradients of its shards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/order/shares.hpp"
#include "models/fit/accumulation.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_threads.hpp"
#include "models/fit/step_checks.hpp"
#include "models/fit/step_faults.hpp"
#include "models/ops/answer.hpp"
#include "sync/reduce/subtrees.hpp"

namespace lockstep {

class JointGradients;

/// A subtree of a rank's shards (Shares), by their numbers on the rank, and where they are added up.
struct Subtree {
  Range shards;
  nn::GradientBuffer sum;
};

/// The labels of the samples of a subtree, and their losses, which a GPU may still be computing. If the losses say what
/// the labels weigh, these may be counted with another subtree's.
struct StartedShards {
  std::int64_t labels;
  ops::Answer<ops::Kernels::BatchLoss> loss;
};

/// Computes the gradients of a rank's shards, one subtree of the sum over all shards after the other, and hands those
/// of the last one to the step as soon as each is ready. The shards of a subtree are computed together; where a shard
/// has several micro-batches, one after the other, so that its sum is the same on every rank; those of a joint model,
/// by JointGradients.
class StepGradients {
 public:
  /// COLL. Everything must outlive it, but for the handle `sum`, where the gradients and statistics of the last subtree
  /// are added up. `threads` may be null.
  StepGradients(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
                ShardThreads* threads, const Shares& shares, const FitOptions& options, StepFaults& faults,
                StepChecks& checks);
  StepGradients(const StepGradients&) = delete;
  ~StepGradients();

  /// For the sums of the gradients, if some rank has several subtrees; otherwise null.
  const Subtrees* subtrees() const { return several_ ? &*several_ : nullptr; }

  /// The sums that a step makes over the ranks on its way.
  const Optimizer::Computation::Sums& sums_on_the_way() const { return sums_on_the_way_; }

  RankShards::Order order() const;  ///< of its loads

  /// LOCAL; COLL for a joint model. Starts what a step computes of these samples, those of all ranks. Returns how many
  /// labels this rank has. The step reads its losses later.
  Optimizer::StepSums start(std::int64_t step, std::span<const std::int64_t> samples, Optimizer::AgreedStep& agreed);

 private:
  void place_subtrees(const Shares& shares);
  StartedShards start_shards(std::int64_t step, const RankShards::Loaded& shards, const Subtree& subtree);
  StartedShards accumulate(std::int64_t step, std::span<const std::int64_t> samples, const Subtree& subtree);
  /// Of the micro-batch of each shard, the first of which is number `first` of this rank's.
  void note_read(const SampleBatch::Group& read, std::int64_t first);

  Strategy& strategy_;
  nn::Model& model_;
  nn::GradientBuffer sum_;
  RankShards& shards_;
  ShardThreads* threads_;
  const FitOptions& options_;
  StepFaults& faults_;
  StepChecks& checks_;
  std::optional<Subtrees> several_;
  std::vector<Tensor> other_statistics_;
  std::vector<Subtree> subtrees_;             ///< of this rank
  std::optional<Accumulation> accumulation_;  ///< empty if a shard is one micro-batch, or for a joint model
  std::unique_ptr<JointGradients> joint_;     ///< for a joint model
  Optimizer::Computation::Sums sums_on_the_way_;
};

}  // namespace lockstep
