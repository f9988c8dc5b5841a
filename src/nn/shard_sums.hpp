// Sums of what the shards of a rank yield, in the fixed order.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <lockstep/input/batch.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::nn {

/// A sum of losses, and the weight of the labels that they belong to.
struct WeighedLoss {
  double loss = 0;
  double weight = 0;
};

/// What `result` says of `batch`, whose labels weigh 1 each if it does not say what they weigh.
WeighedLoss weighed(const ops::BatchLoss& result, const SampleBatch& batch);

/// Sums of losses and weights.
class LossSum {
 public:
  void push(const WeighedLoss& own);
  /// The sums since the last call. There must be at least one.
  WeighedLoss finish();
  /// Forgets the losses since the last `finish`.
  void clear() { parts_.clear(); }

 private:
  FixedOrderAccumulator parts_{DType::f64, 2};
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
  void push(const WeighedLoss& own);
  /// Call it when all shards are there. Returns the sum of the losses.
  WeighedLoss finish();

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
