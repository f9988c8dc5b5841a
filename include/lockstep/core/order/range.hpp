// A half-open range of positions.
#pragma once

#include <cstdint>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// Positions first, first + 1, … last - 1. Empty if first == last.
struct LOCKSTEP_API Range {
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t size() const { return last - first; }

  // Shards are the fixed slices of every global batch that determine the numbers of a run. Their number is part of the
  // experiment; the number of ranks that share them is not.

  /// The samples of shard `shard`, as positions in a batch of `batch_size`. The shards lie side by side in order, and
  /// their sizes differ by at most one. If the batch is smaller than the number of shards, some shards are empty.
  static Range of_shard(std::int64_t batch_size, int shards, std::int64_t shard);

  /// The shards that `rank` computes in a program that adds them up itself. Ranks have adjacent shards in their order,
  /// each those of one whole subtree of the sum over all shards, so that this sum has the same bits on any number of
  /// ranks. Where both numbers are powers of two, all ranks have as many. Otherwise shares differ: of 8 shards, 3 ranks
  /// have 2, 2 and 4, and 7 ranks have 1 each but the last, which has 2; of 5 shards, 2 ranks have 4 and 1.
  /// InvalidArgument if there are more ranks than shards.
  static Range of_rank(int shards, int ranks, int rank);

  bool operator==(const Range&) const = default;
};

}  // namespace lockstep
