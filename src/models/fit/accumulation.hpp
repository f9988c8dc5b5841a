// Sums over micro-batches and shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>

#include "models/nn/shard_sums.hpp"

namespace lockstep {

/// Gradients and statistics of several shards, side by side in memory.
class ShardBuffers {
 public:
  ShardBuffers(const nn::GradientBuffer& like, std::int64_t shards);

  std::span<const nn::GradientBuffer> of_each() const { return of_each_; }

  /// Adds those of `others`, which must have as many shards.
  void add(const ShardBuffers& others);

  /// Adds up some of the shards as a tree into `sum`, which must have the same layout.
  void sum_up(const Range& shards, const nn::GradientBuffer& sum) const;

 private:
  Stream& stream_;
  Tensor gradients_, statistics_;
  std::vector<nn::GradientBuffer> of_each_;
};

/// Adds up gradients and statistics: those of a shard's micro-batches one after the other, in order, and those of
/// shards as their tree. Each variable's gradient is added as soon as it is ready.
class Accumulation final : private nn::ReadyListener {
 public:
  /// For sums in memory like that of `sum`, and this number of micro-batches in a shard: 2 or more.
  Accumulation(const nn::GradientBuffer& sum, int micro_batches);
  Accumulation(const Accumulation&) = delete;
  Accumulation& operator=(const Accumulation&) = delete;

  /// Begins the sums of `shards` shards, in `sum` (ShardSums::begin).
  void begin(const nn::GradientBuffer& sum, std::int64_t shards, nn::ShardWatch* watch = nullptr) {
    shards_.begin(sum, shards, watch);
  }

  void begin_shard(std::int64_t shard);
  /// Where to write the next micro-batch's gradients and statistics.
  nn::GradientBuffer next();
  /// Adds them.
  void push();
  void end_shard() { shards_.push(); }
  /// Call it when all shards are there.
  void finish() { shards_.finish(); }

 private:
  void on_ready(std::size_t variable) override;

  nn::ShardSums shards_;
  ShardBuffers room_;
  nn::GradientBuffer micro_batch_;  ///< for micro-batches after the first of a shard
  nn::GradientBuffer shard_;        ///< of the current shard
  int micro_batches_;
  int number_ = 0;          ///< of the current micro-batch
  std::vector<int> added_;  ///< micro-batches of each variable
};

}  // namespace lockstep
