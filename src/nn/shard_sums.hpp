// Sums of what the shards of a rank yield, in the fixed order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// Sums of losses.
class LossSum {
 public:
  void push(double loss);
  /// The sum of the losses since the last call. There must be at least one.
  double finish();
  /// Forgets the losses since the last `finish`.
  void clear() { parts_.clear(); }

 private:
  FixedOrderAccumulator parts_{DType::f64, 1};
};

/// Sums of a step's gradients, statistics and losses, for a model that takes one shard after the other.
class ShardSums {
 public:
  /// Sums into `sum`: gradients and, if it has memory for them, statistics.
  explicit ShardSums(const GradientBuffer& sum);

  /// Whether it was made for `sum`.
  bool is_for(const GradientBuffer& sum) const;

  /// Begins a sum. Forgets the shards of an unfinished one.
  void begin();
  /// Where to write the next shard's gradients and statistics.
  GradientBuffer next();
  /// Adds them, and the shard's loss.
  void push(double loss);
  /// Call it when all shards are there. Returns the sum of the losses.
  double finish();

 private:
  GradientBuffer home_;
  FixedOrderAccumulator gradient_sum_, statistics_sum_;
  LossSum loss_sum_;
};

/// Sums of a step's gradients, variable by variable, for a model that takes all shards layer by layer. The bits are
/// those of ShardSums.
class GradientSums {
 public:
  /// Sums into `sum`, for its `variables`.
  GradientSums(const GradientBuffer& sum, std::span<const Variable> variables);

  /// Whether it was made for `sum`.
  bool is_for(const GradientBuffer& sum) const;

  /// Where a variable's sum is written.
  const TensorView& home(std::size_t variable) const { return sums_[variable]; }

  /// Begins a variable's sum. Forgets the shards of an unfinished one.
  FixedOrderAccumulator& begin(std::size_t variable);
  /// Call it when the gradients of all shards are there.
  void finish(std::size_t variable);

 private:
  GradientBuffer home_;
  std::vector<TensorView> sums_;
  std::vector<FixedOrderAccumulator> parts_;
};

}  // namespace lockstep::nn
