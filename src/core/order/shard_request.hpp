// The value of --shards: how many shards (Range::of_shard) a job has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// The number of shards as the user asked for it, before the number of ranks is known.
struct ShardRequest {
  enum class Kind : std::uint8_t { automatic, per_rank, count };

  struct Choice {
    int shards;
    /// One line for the log if the choice may surprise the user; otherwise empty.
    std::string note = {};
    /// Whether each rank has one shard, however many ranks there are. The bits then depend on the number of ranks.
    bool one_per_rank = false;
  };

  Kind kind = Kind::automatic;
  /// Used only if `kind` is `count`.
  int count = 0;

  /// Parses the value of --shards: a positive number, or "ranks". ConfigError for anything else.
  static ShardRequest parse(std::string_view text);

  /// The number of shards of a job of `ranks` ranks. Without a request, it is 8 up to 8 ranks; beyond, the next power
  /// of two, which the note says, and above 1024 one per rank. For "ranks", it is one per rank. A requested number must
  /// be at least that of the ranks, and at most 1024 or that of the ranks; otherwise ConfigError, which says what fits.
  /// InvalidArgument for less than one rank.
  Choice resolve(int ranks) const;
};

}  // namespace lockstep
