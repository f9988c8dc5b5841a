// Sums of losses over the shards of a rank, in the fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "models/nn/shard_watch.hpp"
#include "models/ops/answer.hpp"

namespace lockstep::nn {

/// The loss and weight of `batch` in `result`; each label weighs 1 if it gives no weight.
ops::Kernels::BatchLoss::Weighed weighed(const ops::Kernels::BatchLoss& result, const SampleBatch& batch);

/// Sums of losses and weights.
class LossSum {
 public:
  void push(const ops::Kernels::BatchLoss::Weighed& own);
  /// The sums since the last call. There must be at least one.
  ops::Kernels::BatchLoss::Weighed finish();
  /// Forgets the losses since the last `finish`.
  void clear() { parts_.clear(); }

 private:
  FixedOrderAccumulator parts_{DType::f64, 2};
};

/// The losses of a rank's shards, which a GPU may still be computing: wait for it before reading them.
class ShardLosses {
 public:
  /// Of the next micro-batch of shard number `shard`, from 0.
  void push(std::int64_t shard, ops::Answer<ops::Kernels::BatchLoss> loss, const SampleBatch& micro_batch);

  /// The sum of a shard's micro-batches, in order, with its weight. Throws what one of them throws.
  ops::Kernels::BatchLoss of_shard(std::int64_t shard) const;

  /// The sum of all shards, in the tree of their gradients. Throws what the first failed loss throws. There must be a
  /// shard.
  ops::Kernels::BatchLoss read() const { return sum_of(parts_.size()); }

  /// The same without the audited shards of `watch`, after a wait for `stream`. Tells `watch` the losses of the shards
  /// it wants.
  ops::Kernels::BatchLoss read_shown_to(ShardWatch& watch, Stream& stream) const;

 private:
  ops::Kernels::BatchLoss sum_of(std::size_t shards) const;

  struct Part {
    ops::Answer<ops::Kernels::BatchLoss> loss;
    double labels;  ///< their weight, if the loss does not say it
  };

  std::vector<std::vector<Part>> parts_;  ///< by shard
};

}  // namespace lockstep::nn
