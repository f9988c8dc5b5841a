// Sums of losses over the shards of a rank, in the fixed order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "models/nn/shard_watch.hpp"
#include "models/ops/answer.hpp"

namespace lockstep::nn {

TensorView view_of(std::span<double> numbers);

/// The loss and weight of `batch` in `result`; each label weighs 1 if it gives no weight.
ops::Kernels::BatchLoss::Weighed weighed(const ops::Kernels::BatchLoss& result, const SampleBatch& batch);

/// The losses of a rank's shards, which a GPU may still be computing: wait for it before reading them.
class ShardLosses {
 public:
  /// Of the next micro-batch of shard number `shard`, from 0. `labels` are their weight, if the loss does not say it.
  void push(std::int64_t shard, ops::Answer<ops::Kernels::BatchLoss> loss, std::int64_t labels);

  /// The sum of a shard's micro-batches, in order, with its weight. Throws what one of them throws.
  ops::Kernels::BatchLoss of_shard(std::int64_t shard) const;

  /// The sum of all shards, or of a subtree, in the tree of their gradients. Throws what the first failed loss throws.
  /// There must be a shard.
  ops::Kernels::BatchLoss read() const { return read({0, std::ssize(parts_)}); }
  ops::Kernels::BatchLoss read(const Range& shards) const;

  /// The same without the audited shards of `watch`, after a wait for `stream`. Tells `watch` the losses of the shards
  /// it wants.
  ops::Kernels::BatchLoss read_shown_to(ShardWatch& watch, Stream& stream) const;

 private:
  struct Part {
    ops::Answer<ops::Kernels::BatchLoss> loss;
    double labels;
  };

  std::vector<std::vector<Part>> parts_;  ///< by shard
};

}  // namespace lockstep::nn
