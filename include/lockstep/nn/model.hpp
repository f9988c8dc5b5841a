// What a training loop asks of a model.
#pragma once

#include <span>
#include <string_view>

#include <lockstep/input/batch.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/variable.hpp>

namespace lockstep::nn {

/// A classifier with trainable variables. It works on one shard of a batch at a time, and what it computes is
/// a function of its variables, the shard's samples and its capacity alone: not of the shards before, the
/// rank or the number of ranks. Whoever sums shards up in a fixed order therefore gets the same bits
/// everywhere.
///
/// Batches and gradients are in memory of the strategy's device. Every method is LOCAL. Not thread-safe: a model keeps
/// the activations of the shard that it works on.
class Model {
 public:
  virtual ~Model() = default;

  /// "mlp", "gpt".
  virtual std::string_view name() const = 0;

  /// All of them trainable, in the order of their creation.
  virtual std::span<const Variable> variables() const = 0;

  /// Forward and backward. Overwrites every variable's part of `gradients`, a buffer made for `variables()`,
  /// with the gradient of the shard's *sum* of losses, and returns those sums: over its labels, of which there are
  /// shard.counted_labels(). A shard without samples gives +0.0 everywhere. InvalidArgument for a batch or a buffer
  /// that is not of the model's sizes and dtype, and for a label outside of the classes.
  virtual ops::CrossEntropy train_shard(const SampleBatch& shard, const GradientBuffer& gradients) = 0;

  /// Forward only: the same result.
  virtual ops::CrossEntropy evaluate_shard(const SampleBatch& shard) = 0;
};

}  // namespace lockstep::nn
