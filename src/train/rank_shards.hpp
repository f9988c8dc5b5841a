// One rank's shards: from samples in the order of a step to batches for a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/input/range.hpp>
#include <lockstep/input/sample_source.hpp>
#include <lockstep/nn/model.hpp>

#include "train/shard_loader.hpp"

namespace lockstep {

/// Adjacent samples in the batch of a step.
struct BatchPart {
  std::span<const std::int64_t> samples;
  std::int64_t first = 0;  ///< where they begin in that batch

  /// Part `number` of `parts`, cut as a batch is cut into shards.
  BatchPart part(int parts, int number) const;
};

/// What a batch is cut into.
struct BatchCut {
  int shards = 1;
  int micro_batches = 1;  ///< per shard
};

/// Loads the shards of one rank from `source`, one micro-batch of one shard or of all at a time.
class RankShards {
 public:
  /// For batches of up to `largest_batch` samples. `source` and `stream` must outlive it.
  RankShards(const SampleSource& source, std::int64_t largest_batch, BatchCut cut, Range mine, Stream& stream);

  /// Number of shards of this rank.
  std::int64_t count() const { return mine_.size(); }

  /// Number of micro-batches per shard.
  int micro_batches() const { return cut_.micro_batches; }

  /// Batches for a model, and where each begins in the batch of the step. Valid until the next load.
  struct Loaded {
    const BatchGroup& group;
    std::span<const std::int64_t> first_samples;

    std::int64_t labels() const;
    std::vector<nn::ShardPlace> places(std::int64_t step) const;
  };

  /// A micro-batch of all shards of this rank, or of its shard number `shard`.
  Loaded load_all(std::span<const std::int64_t> batch, int micro_batch = 0);
  Loaded load_one(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch = 0);

  /// Number of samples in a micro-batch of all shards, including other ranks'.
  std::int64_t samples_of_all(std::span<const std::int64_t> batch, int micro_batch) const;

 private:
  BatchPart part_of(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) const;
  Loaded load(std::optional<ShardLoader>& loader, std::span<const std::int64_t> batch, Range shards, int micro_batch);

  const SampleSource& source_;
  std::int64_t capacity_;  ///< of a micro-batch
  BatchCut cut_;
  Range mine_;
  Stream& stream_;
  std::optional<ShardLoader> all_, one_;  ///< made on first use
  std::vector<std::span<const std::int64_t>> samples_;
  std::vector<std::int64_t> first_samples_;
};

}  // namespace lockstep
