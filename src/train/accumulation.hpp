// What the micro-batches of shards add up to.
#pragma once

#include <cstdint>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "nn/shard_sums.hpp"

namespace lockstep {

/// Gradients, statistics and losses: those of a shard's micro-batches one after the other, first one first, and those
/// of shards as their tree.
class Accumulation {
 public:
  /// Into `sum`.
  explicit Accumulation(const nn::GradientBuffer& sum);

  void begin_shard();
  /// Where the next micro-batch's gradients and statistics are to be written.
  nn::GradientBuffer next() const;
  /// Takes them, and the micro-batch's loss.
  void push(double loss);
  void end_shard();
  /// When all shards are there: the sum of the losses.
  double finish();

 private:
  nn::ShardSums shards_;
  Tensor gradients_, statistics_;
  nn::GradientBuffer micro_batch_;  ///< of one behind the first of a shard
  nn::GradientBuffer shard_;        ///< of the shard that is going on
  double loss_ = 0;
  bool first_ = true;
};

}  // namespace lockstep
