// What the shards of a rank yield, added up in the fixed order.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// A sum of tensors, of which the only one is written where the sum belongs.
class ShardSum {
 public:
  /// Of `shards` tensors like `sum`, which may have no elements, in memory that must outlive this object.
  ShardSum(const TensorView& sum, std::int64_t shards, Stream& stream);

  /// Where the next shard's is to be written.
  TensorView next();
  /// Takes what was written there.
  void push();
  /// When all are there: the sum is where it belongs.
  void finish();

  const TensorView& sum() const { return sum_; }

 private:
  TensorView sum_;
  std::optional<FixedOrderAccumulator> parts_;  ///< none where there is one shard, or nothing to add up
};

/// Sums of losses.
class LossSum {
 public:
  void push(double loss);
  /// Of those since the last call; there must be one.
  double finish();

 private:
  FixedOrderAccumulator parts_{DType::f64, 1};
};

/// The gradients, the statistics and the losses of a step's shards.
class ShardSums {
 public:
  /// Of `shards` shards, into `sum`: gradients and, if it has a place for them, statistics.
  ShardSums(const GradientBuffer& sum, std::int64_t shards);

  /// Whether it was made for these.
  bool is_for(const GradientBuffer& sum, std::int64_t shards) const;

  /// Where the next shard's gradients and statistics are to be written.
  GradientBuffer next();
  /// Takes them, and the shard's loss.
  void push(double loss);
  /// When all are there: the sum of the losses.
  double finish();

 private:
  GradientBuffer home_;
  std::int64_t shards_;
  ShardSum gradient_sum_;
  ShardSum statistics_sum_;
  LossSum loss_sum_;
};

}  // namespace lockstep::nn
