// What a training loop needs of a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep::nn {

class JointModel;
class ShardLosses;
class ShardSums;
class ShardWatch;

/// A model with trainable variables, and its loss: any that is a sum over labels, each times its weight. It works on
/// one shard of a batch at a time. Its result is a function of its variables and of the shard's samples, place and
/// capacity alone, not of earlier shards, the rank or the number of ranks. Summing shards in a fixed order therefore
/// gives the same bits everywhere.
///
/// Batches and gradients are in memory of the strategy's device. Every method is LOCAL. Not thread-safe: a model keeps
/// the activations of the shard it works on.
class LOCKSTEP_API Model {
 public:
  /// Where a shard is in the training. Random numbers for its samples depend on this and on the model's seed, never on
  /// the rank or the number of shards.
  struct ShardPlace {
    std::int64_t step = 0;          ///< from 0
    std::int64_t first_sample = 0;  ///< where the shard begins in the step's global batch
  };

  /// What a pass over a shard, or over several, returns.
  using BatchLoss = ops::Kernels::BatchLoss;

  /// The numbers that a model computes with. `full`: everything is of the type of the variables. `bf16`: activations,
  /// their gradients and the weights that products read are bf16, while the variables themselves, their gradients,
  /// biases, norms, statistics, losses and all sums stay f32 (Micikevicius et al.: "Mixed precision training", 2018;
  /// bf16 has f32's range and so needs no scaling of the loss). The weights of products are read from a copy that
  /// follows the variables (Variable::for_reading).
  enum class Precision : std::uint8_t { full, bf16 };

  /// The two passes of training, in order. The loss belongs to the forward pass.
  enum class Pass : std::uint8_t { forward, backward };

  Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model();

  /// "mlp", "gpt".
  virtual std::string_view name() const = 0;

  /// All trainable, in order of creation.
  virtual std::span<const Variable> variables() const = 0;

  /// Forward and backward pass. `gradients` is a buffer made for `variables()`, with memory for as many statistics as
  /// the model has. Overwrites every variable's part of it with the gradient of the shard's *sum* of losses, and its
  /// statistics. Returns sums over the labels of the samples present. If these are not shard.counted_labels() labels of
  /// weight 1, as with masks of padding, the result says what they weigh together, which is 0 or more. A shard without
  /// samples gives +0.0 everywhere. InvalidArgument for a batch or buffer of other sizes or dtype than the model's, and
  /// for a label outside the classes.
  virtual BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place, const GradientBuffer& gradients) = 0;

  /// Forward and backward pass of shards that are adjacent in the global batch. Adds up what train_shard yields for
  /// each in the tree of FixedOrderAccumulator: gradients and statistics into `sum`, a buffer as for train_shard, and
  /// losses into the result. The bits are those of that sum, however a model computes it. `places` are those of the
  /// shards; InvalidArgument for another number of them, or none.
  virtual BatchLoss train_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                 const GradientBuffer& sum);

  /// Another model of the same variables, with activations of its own, so that a second thread can compute shards
  /// beside this one: train_shard, train_shards and evaluate_shard. It has the same results, and may use what this one
  /// owns, so it must not outlive it. Null, as here, for a model that only one thread can compute.
  virtual std::unique_ptr<Model> make_worker() const { return nullptr; }

  /// Forward pass only, as in use after training. The same result as train_shard's if the model has neither statistics
  /// nor dropout.
  virtual BatchLoss evaluate_shard(const SampleBatch& shard) = 0;

  /// The model's outputs for each sample present, as [samples, outputs] row by row: logits of classes, or predicted
  /// numbers. Blocking. InvalidArgument as for train_shard. A model without such outputs keeps this default, which
  /// throws InvalidArgument.
  virtual std::vector<double> logits(const SampleBatch& batch);

  /// The number of elements that a shard yields besides its gradients, of the same dtype. They are sums over its
  /// samples, so those of shards add up. They must travel as the gradients do, through the same tree and under the same
  /// agreement.
  virtual std::int64_t statistics() const { return 0; }

  /// Absorbs the statistics of a step, summed over all its shards, and its number of samples; does nothing if that is
  /// 0. The moving averages stay the same on every rank if each calls this in every step with the same bits.
  /// InvalidArgument for another number or dtype of statistics, or a negative number of samples.
  virtual void absorb_statistics(const TensorView& /*total*/, std::int64_t /*samples*/) {}

  /// The moving averages of the statistics: sync-on-read variables with the same components on every rank.
  virtual std::vector<SyncOnReadVariable> moving_averages() const { return {}; }

  /// For profiling. From here on, each training pass, of one shard or several, calls `observer` when it begins.
  /// A shard without samples may skip its passes. An empty function ends this.
  void observe_passes(std::function<void(Pass)> observer) { on_pass_ = std::move(observer); }

 protected:
  /// Models call it before each pass of train_shard and train_shards. Without it, both passes of a model count as
  /// forward where `fit` reports where the time goes (Observer::Parts).
  void begin(Pass pass) const;

  /// The sum of shards that are computed one after the other.
  detail::Answer<BatchLoss> start_one_by_one(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                             const GradientBuffer& sum);

 private:
  friend struct detail::Inside<Model>;

  // What only lockstep's own models override.

  /// As train_shards, and `watch` sees what each shard that it wants yields.
  virtual BatchLoss train_watched(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                  const GradientBuffer& sum, ShardWatch& watch);

  /// As train_shards, but the losses are known only when the work on the strategy's stream is done, so that a step
  /// waits for its GPU once. The answer says, too, what is wrong with labels or tokens that lie on a GPU. Unless
  /// overridden, this is train_shards.
  virtual detail::Answer<BatchLoss> start_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                                 const GradientBuffer& sum);

  /// The same of one shard. Unless overridden, this is train_shard.
  virtual detail::Answer<BatchLoss> start_shard(const SampleBatch& shard, const ShardPlace& place,
                                                const GradientBuffer& gradients);

  /// This model as a JointModel, if it computes the shards of a step together; otherwise
  /// null. train_shard of a joint model treats its shard as the whole batch.
  virtual JointModel* joint() { return nullptr; }

  /// `watch` may be null.
  ShardLosses pass_one_by_one(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                              const GradientBuffer& sum, ShardWatch* watch);

  std::function<void(Pass)> on_pass_;
  std::unique_ptr<ShardSums> shard_sums_;  ///< memory for train_shards, from its first call on
};

}  // namespace lockstep::nn
