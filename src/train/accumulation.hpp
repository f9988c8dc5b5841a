// Sums over micro-batches and shards.
#pragma once

#include <cstdint>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "nn/shard_sums.hpp"

namespace lockstep {

/// Adds up gradients, statistics and losses: those of a shard's micro-batches one after the other, in order, and those
/// of shards as their tree.
class Accumulation {
 public:
  /// Into `sum`.
  explicit Accumulation(const nn::GradientBuffer& sum);

  void begin_shard();
  /// Where to write the next micro-batch's gradients and statistics.
  nn::GradientBuffer next() const;
  /// Adds them, and the micro-batch's loss.
  void push(const nn::WeighedLoss& own);
  void end_shard();
  /// Call it when all shards are there. Returns the sum of the losses.
  nn::WeighedLoss finish();

 private:
  nn::ShardSums shards_;
  Tensor gradients_, statistics_;
  nn::GradientBuffer micro_batch_;  ///< for micro-batches after the first of a shard
  nn::GradientBuffer shard_;        ///< of the current shard
  nn::WeighedLoss loss_;
  bool first_ = true;
};

}  // namespace lockstep
