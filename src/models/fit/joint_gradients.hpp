// The gradients of a step whose shards are computed together.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/sync/optim/optimizer.hpp>

#include "models/fit/accumulation.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_losses.hpp"
#include "models/nn/shard_watch.hpp"
#include "models/ops/answer.hpp"

namespace lockstep {

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

/// Micro-batches outside, all shards of the rank inside. A micro-batch is computed together with those of all other
/// shards, and added to its own shard's earlier ones. The sum of a shard is therefore the same on every rank.
class JointGradients {
 public:
  /// For sums in memory like that of `sum`. Everything must outlive it.
  JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards);

  /// The sums that a step makes over the ranks on its way.
  const Optimizer::Computation::Sums& sums() const { return sums_; }

  struct Onlookers {
    std::function<void(const SampleBatch::Group& micro_batch)> read;
    nn::ShardWatch* watch = nullptr;  ///< may be null
  };

  /// COLL. Writes the gradients and statistics of this rank's shards of `batch` to the sums of its subtrees, where all
  /// are ready at the end.
  std::vector<StartedShards> compute(std::int64_t step, std::span<const std::int64_t> batch, DeclaredSums& ranks,
                                     std::span<const Subtree> subtrees, const Onlookers& onlookers);

 private:
  void show(nn::ShardWatch& watch, const nn::ShardLosses& losses) const;

  nn::JointModel& model_;
  RankShards& shards_;
  Optimizer::Computation::Sums sums_;
  ShardBuffers of_shards_;
  std::optional<ShardBuffers>
      of_micro_batch_;  ///< for micro-batches after the first; empty if a shard is one micro-batch
};

}  // namespace lockstep
