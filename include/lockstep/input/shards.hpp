// Shards: the fixed slices of every global batch that determine the numbers of a run. The number of shards is part of
// the experiment; the number of ranks that share them is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/input/range.hpp>

namespace lockstep {

/// The number of shards as the user asked for it, before the number of ranks is known.
struct ShardRequest {
  enum class Kind : std::uint8_t { automatic, per_rank, count };

  struct Choice {
    int shards;
    /// One line for the log if the choice may surprise the user; otherwise empty.
    std::string note = {};
    /// Whether each rank has one shard, however many ranks there are. The bits then depend on the number of ranks
    /// anyway.
    bool one_per_rank = false;
  };

  Kind kind = Kind::automatic;
  /// Used only if `kind` is `count`.
  int count = 0;

  /// Parses the value of --shards: a positive number, or "ranks". ConfigError for anything else.
  static ShardRequest parse(std::string_view text);

  /// The number of shards of a job of `ranks` ranks. Without a request, it is 8 if the ranks divide that, otherwise one
  /// per rank, which the note says. For "ranks", it is one per rank. A requested number must be a power of two (at most
  /// 1024) that the ranks divide, or the number of ranks itself; otherwise ConfigError, listing the numbers that fit.
  Choice resolve(int ranks) const;
};

/// The samples of shard `shard`, as positions in a batch of `batch_size`. The shards lie side by side in order, and
/// their sizes differ by at most one. If the batch is smaller than the number of shards, some shards are empty.
Range shard_range(std::int64_t batch_size, int shards, int shard);

/// The shards that `rank` computes: as many as every other rank, side by side in the order of ranks. If both numbers
/// are powers of two, they are the leaves of one whole subtree of the sum over all shards. InvalidArgument unless
/// `ranks` divides `shards`.
Range shards_of_rank(int shards, int ranks, int rank);

}  // namespace lockstep
