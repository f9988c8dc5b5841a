// Sums of losses over the shards of a rank, in the fixed order.
#pragma once

#include <vector>

#include <lockstep/input/batch.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/reduce/fixed_order.hpp>

#include "nn/shard_watch.hpp"
#include "ops/answer.hpp"

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

/// The losses of a rank's shards, which a GPU may still be computing.
class ShardLosses {
 public:
  /// Of the next micro-batch of the current shard.
  void push(ops::Answer<ops::Kernels::BatchLoss> loss, const SampleBatch& micro_batch);
  /// There must have been a micro-batch.
  void end_shard();

  /// Call it when all are known. Adds up a shard's micro-batches in order, and the shards in the tree of their
  /// gradients. Throws what the first failed loss throws. There must be a shard.
  ops::Kernels::BatchLoss read() const;

  /// The same, after a wait for `stream`. Tells `watch` the losses of the shards it wants, each of one micro-batch.
  ops::Kernels::BatchLoss read_shown_to(ShardWatch& watch, Stream& stream) const;

 private:
  struct Part {
    ops::Answer<ops::Kernels::BatchLoss> loss;
    double labels;  ///< their weight, if the loss does not say it
    bool ends_shard = false;
  };

  std::vector<Part> parts_;
};

}  // namespace lockstep::nn
