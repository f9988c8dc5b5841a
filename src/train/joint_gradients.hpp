// The gradients of a step whose shards are computed together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/nn/joint_model.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/reduce/declared_sums.hpp>

#include "nn/shard_sums.hpp"
#include "train/rank_shards.hpp"

namespace lockstep {

/// Gradients and statistics of each of some shards, side by side in memory.
class ShardBuffers {
 public:
  ShardBuffers(const nn::GradientBuffer& like, std::int64_t shards);

  std::span<const nn::GradientBuffer> of_each() const { return of_each_; }

  /// += those of `others`, which are of as many shards.
  void add(const ShardBuffers& others);

  /// The tree over the shards into `sum`, which the buffers are like.
  void sum_up(const nn::GradientBuffer& sum) const;

 private:
  Stream& stream_;
  Tensor gradients_, statistics_;
  std::vector<nn::GradientBuffer> of_each_;
};

/// Micro-batches outside, all shards of the rank inside: a micro-batch is computed with that of all other shards, and
/// added to what its own shard has from those before. So the sum of a shard is the same on whichever rank.
class JointGradients {
 public:
  /// Into `sum`. Everything must outlive it.
  JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards);

  /// What a step adds up over the ranks on its way.
  const SumList& sums() const { return sums_; }

  /// COLL. The gradients and statistics of this rank's shards of `batch` into `sum`; their labels, losses and right
  /// answers.
  StepSums compute(std::int64_t step, std::span<const std::int64_t> batch, DeclaredSums& ranks);

 private:
  nn::JointModel& model_;
  nn::GradientBuffer sum_;
  RankShards& shards_;
  SumList sums_;
  ShardBuffers of_shards_;
  std::optional<ShardBuffers> of_micro_batch_;  ///< of one behind the first; none where a shard is one micro-batch
  nn::LossSum loss_sum_;
};

}  // namespace lockstep
