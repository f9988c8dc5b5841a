// Who looks at the results of single shards.
#pragma once

#include <cstddef>
#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::nn {

/// Sees the results of single shards, which a rank otherwise adds up as they come. Shards are numbered from 0 within
/// the call that computes them, and variables by their position in GradientBuffer::variables. Several threads may call
/// it, each for shards of its own. On a GPU, the stream may still be computing what a view shows.
class ShardWatch {
 public:
  /// How many of the call's last shards are audited, 0 or 1: shards of another rank, which come after its own. The
  /// watch sees what they yield, and nothing of it is added to any sum.
  virtual std::int64_t audited() const = 0;

  virtual bool wants(std::int64_t shard) const = 0;

  /// Whether the gradients of a shard may be shown in parts.
  virtual bool takes_parts(std::int64_t shard) const = 0;

  /// The gradient of a variable, or the next part of it in memory order, complete, before it is added to those of other
  /// shards.
  virtual void on_gradient(std::int64_t shard, std::size_t variable, const TensorView& part) = 0;

  /// The same of the shard's statistics, if the model has any.
  virtual void on_statistics(std::int64_t shard, const TensorView& statistics) = 0;

  /// The shard's loss, which says its weight.
  virtual void on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) = 0;

 protected:
  ~ShardWatch() = default;
};

}  // namespace lockstep::nn
