// Who looks at the results of single shards.
#pragma once

#include <cstdint>

#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/ops/kernels.hpp>

namespace lockstep::nn {

/// Sees the results of single shards, which a rank otherwise adds up as they come. Shards are numbered from 0 within
/// the call that computes them. Several threads may call it, each for shards of its own.
class ShardWatch {
 public:
  virtual bool wants(std::int64_t shard) const = 0;

  /// `gradients` and its statistics are those of this shard alone, and no longer than this call. On a GPU, the stream
  /// may still be computing them. `loss` says its weight.
  virtual void on_shard(std::int64_t shard, const GradientBuffer& gradients, const ops::Kernels::BatchLoss& loss) = 0;

 protected:
  ~ShardWatch() = default;
};

}  // namespace lockstep::nn
