// The shards of one rank, from samples in the order of a step to batches that a model takes.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/input/idx.hpp>
#include <lockstep/input/range.hpp>

#include "train/shard_batch.hpp"

namespace lockstep {

/// Samples that stand beside each other in the batch of a step.
struct BatchPart {
  std::span<const std::int64_t> samples;
  std::int64_t first = 0;  ///< where they begin in that batch

  /// One of `parts`, cut as a batch is into shards.
  BatchPart part(int parts, int number) const;
};

/// Into what a batch is cut.
struct BatchCut {
  int shards = 1;
  int micro_batches = 1;  ///< of each shard
};

/// Which of the batches of `images` a rank computes, in micro-batches: memory for one of these at a time.
class RankShards {
 public:
  /// For batches of up to `largest_batch` samples. `images` and `stream` must outlive it.
  RankShards(const ImageSet& images, std::int64_t largest_batch, BatchCut cut, Range mine, DType dtype, Stream& stream);

  std::int64_t count() const { return mine_.size(); }

  /// Calls `body` with each of this rank's shards of `batch`, in order.
  template <class Body>
  void for_each(std::span<const std::int64_t> batch, Body&& body) const {
    for (std::int64_t shard = mine_.first; shard < mine_.last; ++shard)
      body(BatchPart{batch}.part(cut_.shards, static_cast<int>(shard)));
  }

  /// Calls `body` with the micro-batches of a shard, in order: what a model takes, and where that begins in the batch.
  template <class Body>
  void for_each_micro_batch(const BatchPart& shard, Body&& body) {
    for (int number = 0; number < cut_.micro_batches; ++number) {
      const BatchPart part = shard.part(cut_.micro_batches, number);
      body(batch_.load(images_, part.samples), part.first);
    }
  }

 private:
  const ImageSet& images_;
  BatchCut cut_;
  Range mine_;
  ShardBatch batch_;
};

}  // namespace lockstep
