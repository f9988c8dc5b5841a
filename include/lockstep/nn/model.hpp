// What a training loop asks of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <lockstep/input/batch.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/variable.hpp>

namespace lockstep::nn {

class ShardSums;

/// Where in a training a shard is: what random numbers for its samples depend on, besides the model's seed. Never the
/// rank, and never the number of shards.
struct ShardPlace {
  std::int64_t step = 0;          ///< from 0
  std::int64_t first_sample = 0;  ///< where the shard begins in the step's global batch
};

/// A classifier with trainable variables. It works on one shard of a batch at a time, and what it computes is
/// a function of its variables, the shard's samples, place and capacity alone: not of the shards before, the
/// rank or the number of ranks. Whoever sums shards up in a fixed order therefore gets the same bits
/// everywhere.
///
/// Batches and gradients are in memory of the strategy's device. Every method is LOCAL. Not thread-safe: a model keeps
/// the activations of the shard that it works on.
class Model {
 public:
  Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model();

  /// "mlp", "gpt".
  virtual std::string_view name() const = 0;

  /// All of them trainable, in the order of their creation.
  virtual std::span<const Variable> variables() const = 0;

  /// Forward and backward. Overwrites every variable's part of `gradients`, a buffer made for `variables()`,
  /// with the gradient of the shard's *sum* of losses, and its statistics, of which it must have a place for as many as
  /// the model has; returns the sums of losses: over the shard's labels, of which there are shard.counted_labels(). A
  /// shard without samples gives +0.0 everywhere. InvalidArgument for a batch or a buffer that is not of the model's
  /// sizes and dtype, and for a label outside of the classes.
  virtual ops::CrossEntropy train_shard(const SampleBatch& shard, const ShardPlace& place,
                                        const GradientBuffer& gradients) = 0;

  /// Forward and backward of shards that are neighbours in the global batch, and the tree of fixed_order_sum over what
  /// train_shard yields for each: gradients and statistics into `sum`, which train_shard's buffer could be, the loss
  /// into the result. The same bits as that, whichever way a model takes to them. `places` are those of the shards;
  /// InvalidArgument for another number of them, or none.
  virtual ops::CrossEntropy train_shards(const BatchGroup& shards, std::span<const ShardPlace> places,
                                         const GradientBuffer& sum);

  /// Forward only, as it is done with the trained model: the same result where the model has neither statistics nor
  /// dropout.
  virtual ops::CrossEntropy evaluate_shard(const SampleBatch& shard) = 0;

  /// How many numbers a shard yields besides its gradients, of the same dtype: sums over its samples, so that those of
  /// shards add up. They are to travel as the gradients do, through the same tree and under the same agreement.
  virtual std::int64_t statistics() const { return 0; }

  /// Takes in the statistics of a step, the sum over all its shards, and the number of its samples; nothing where that
  /// is 0. Whoever calls it on each rank, in every step, with the same bits, keeps what is made of them the same
  /// everywhere. InvalidArgument for another number of statistics or another dtype, or a negative number of samples.
  virtual void absorb_statistics(const TensorView& /*total*/, std::int64_t /*samples*/) {}

 private:
  std::unique_ptr<ShardSums> shard_sums_;  ///< memory for train_shards, from its first call on
};

}  // namespace lockstep::nn
