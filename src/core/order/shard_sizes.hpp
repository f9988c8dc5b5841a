// How many shards there may be, and how large they are.
#pragma once

#include <cstdint>

#include "core/base/parts.hpp"

namespace lockstep {

/// The number of shards of up to so many ranks, if the user does not choose one.
inline constexpr int default_shards = 8;

/// The largest number of shards that a user can ask for. With one shard per rank there may be more, if there are more
/// ranks.
inline constexpr int max_shards = 1024;

/// The size of the largest shard of a batch of `global_batch`. The memory of every shard is allocated for this many
/// samples.
LOCKSTEP_PARTS_API std::int64_t shard_capacity(std::int64_t global_batch, int shards);

}  // namespace lockstep
