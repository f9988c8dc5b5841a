// The shards of one rank, from samples in the order of a step to batches that a model takes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/input/range.hpp>
#include <lockstep/input/sample_source.hpp>

#include "train/shard_loader.hpp"

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

/// Which of the batches of `source` a rank computes: memory for one micro-batch of a shard, or of all its shards.
class RankShards {
 public:
  /// For batches of up to `largest_batch` samples. `source` and `stream` must outlive it.
  RankShards(const SampleSource& source, std::int64_t largest_batch, BatchCut cut, Range mine, Stream& stream);

  /// Shards of this rank.
  std::int64_t count() const { return mine_.size(); }

  /// Micro-batches of each shard.
  int micro_batches() const { return cut_.micro_batches; }

  /// What a model takes, and where each of its batches begins in the batch of the step. Until the next load.
  struct Loaded {
    const BatchGroup& group;
    std::span<const std::int64_t> first_samples;
  };

  /// A micro-batch of all shards of this rank, or of the one that is this rank's number `shard`.
  Loaded load_all(std::span<const std::int64_t> batch, int micro_batch = 0);
  Loaded load_one(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch = 0);

 private:
  Loaded load(std::optional<ShardLoader>& loader, std::span<const std::int64_t> batch, Range shards, int micro_batch);

  const SampleSource& source_;
  std::int64_t capacity_;  ///< of a micro-batch
  BatchCut cut_;
  Range mine_;
  Stream& stream_;
  std::optional<ShardLoader> all_, one_;  ///< made when first asked for
  std::vector<std::span<const std::int64_t>> samples_;
  std::vector<std::int64_t> first_samples_;
};

}  // namespace lockstep
