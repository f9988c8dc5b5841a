// What the shards of a rank yield, added up in the fixed order.
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
  /// Of those since the last call; there must be one.
  double finish();
  /// Forgets those since the last `finish`.
  void clear() { parts_.clear(); }

 private:
  FixedOrderAccumulator parts_{DType::f64, 1};
};

/// The gradients, the statistics and the losses of a step's shards, for a model that takes one shard after the other.
class ShardSums {
 public:
  /// Into `sum`: gradients and, if it has a place for them, statistics.
  explicit ShardSums(const GradientBuffer& sum);

  /// Whether it was made for that.
  bool is_for(const GradientBuffer& sum) const;

  /// Begins a sum: forgets the shards of one that came to no end.
  void begin();
  /// Where the next shard's gradients and statistics are to be written.
  GradientBuffer next();
  /// Takes them, and the shard's loss.
  void push(double loss);
  /// When all are there: the sum of the losses.
  double finish();

 private:
  GradientBuffer home_;
  FixedOrderAccumulator gradient_sum_, statistics_sum_;
  LossSum loss_sum_;
};

/// The gradients of a step's shards, variable by variable: the same bits as those of ShardSums, for a model that takes
/// all shards layer by layer.
class GradientSums {
 public:
  /// Into `sum`, of its `variables`.
  GradientSums(const GradientBuffer& sum, std::span<const Variable> variables);

  /// Whether it was made for that.
  bool is_for(const GradientBuffer& sum) const;

  /// Where the sum of a variable belongs.
  const TensorView& home(std::size_t variable) const { return sums_[variable]; }

  /// Begins the sum of a variable: forgets the shards of one that came to no end.
  FixedOrderAccumulator& begin(std::size_t variable);
  /// When the gradients of all shards are there.
  void finish(std::size_t variable);

 private:
  GradientBuffer home_;
  std::vector<TensorView> sums_;
  std::vector<FixedOrderAccumulator> parts_;
};

}  // namespace lockstep::nn
