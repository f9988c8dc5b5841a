// What a training loop asks of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/input/batch.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/variable.hpp>

namespace lockstep::nn {

class JointModel;
class ShardSums;

/// Where in a training a shard is: what random numbers for its samples depend on, besides the model's seed. Never the
/// rank, and never the number of shards.
struct ShardPlace {
  std::int64_t step = 0;          ///< from 0
  std::int64_t first_sample = 0;  ///< where the shard begins in the step's global batch
};

/// The two ways through a model, of which training takes one after the other. The loss belongs to the first.
enum class TrainPass : std::uint8_t { forward, backward };

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

  /// The model as one whose shards of a step have to be computed together, which train_shard does not know of: it takes
  /// its shard for the whole batch. Null where each shard is computed by itself.
  virtual JointModel* joint() { return nullptr; }

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

  /// What is made of them: sync-on-read variables whose components are the same on every rank.
  virtual std::vector<SyncOnReadVariable> moving_averages() const { return {}; }

  /// From here on `observer` is called with each pass that training begins, on one shard or on several at once: for who
  /// wants to know where the time goes. A shard without samples may take none. Empty: nobody is called.
  void observe_passes(std::function<void(TrainPass)> observer) { on_pass_ = std::move(observer); }

 protected:
  /// Models call it in front of each pass of train_shard and train_shards.
  void begin(TrainPass pass) const {
    if (on_pass_) on_pass_(pass);
  }

 private:
  std::function<void(TrainPass)> on_pass_;
  std::unique_ptr<ShardSums> shard_sums_;  ///< memory for train_shards, from its first call on
};

}  // namespace lockstep::nn
