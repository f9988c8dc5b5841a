// Sums of losses over the shards of a rank, in the fixed order.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/input/batch.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/reduce/fixed_order.hpp>

#include "ops/answer.hpp"

namespace lockstep::nn {

/// What `result` says of `batch`, whose labels weigh 1 each if it does not say what they weigh.
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

  /// When all are known: those of a shard's micro-batches added up one after the other, and those of shards as their
  /// gradients are. Throws what the first throws. There must be a shard.
  ops::Kernels::BatchLoss read() const;

 private:
  struct Part {
    ops::Answer<ops::Kernels::BatchLoss> loss;
    double labels;  ///< their weight, if the loss does not say it
    bool ends_shard = false;
  };

  std::vector<Part> parts_;
};

}  // namespace lockstep::nn
