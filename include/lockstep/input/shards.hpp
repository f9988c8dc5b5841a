// Shards: the fixed slices of every global batch that the numbers of a run are defined by. How many there are
// is part of the experiment; how many ranks share them is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/input/range.hpp>

namespace lockstep {

/// What a run has where the user does not say, if its ranks divide it.
inline constexpr int default_shards = 8;

/// The largest number of shards that can be asked for. One shard a rank may be more, where there are more ranks.
inline constexpr int max_shards = 1024;

/// The number of shards as the user asked for it, before the number of ranks is known.
struct ShardRequest {
  enum class Kind : std::uint8_t { automatic, per_rank, count };

  Kind kind = Kind::automatic;
  /// Read where `kind` is `count`.
  int count = 0;
};

/// The value of --shards: a positive number, or "ranks". ConfigError for anything else.
ShardRequest parse_shards(std::string_view text);

struct ShardChoice {
  int shards;
  /// One line for the log where the choice differs from what the user may expect; empty otherwise.
  std::string note;
};

/// The number of shards of a job of `ranks` ranks. Asked for nothing: 8 where the ranks divide it, otherwise
/// one per rank, which the note says. Asked for a number: that number where it is a power of two (at most
/// `max_shards`) that the ranks divide, or the number of ranks itself; otherwise a ConfigError that lists the
/// numbers that fit.
ShardChoice resolve_shards(ShardRequest request, int ranks);

/// The samples of shard `shard`, as positions in a batch of `batch_size`: the shards lie side by side in
/// order and their sizes differ by at most one. A batch smaller than the number of shards leaves some of them
/// empty.
Range shard_range(std::int64_t batch_size, int shards, int shard);

/// The size of the largest shard of a batch of `global_batch`: what the memory of every shard is made for.
std::int64_t shard_capacity(std::int64_t global_batch, int shards);

/// The shards that `rank` computes: as many as every other rank, side by side in the order of ranks. For
/// powers of two they are the leaves of one whole subtree of the sum over all shards. InvalidArgument unless
/// `ranks` divides `shards`.
Range shards_of_rank(int shards, int ranks, int rank);

}  // namespace lockstep
