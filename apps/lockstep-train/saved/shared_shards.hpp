// Which numbers of ranks can go on with the shards of a training.
#pragma once

#include <optional>
#include <vector>

#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// The number of shards among the facts of a training; nothing if there is none that a training can have.
std::optional<int> shards_in(const TrainingFacts& training);

/// Whether so many ranks can share so many shards.
bool can_share(int shards, int ranks);

/// All numbers of ranks that can share them, in ascending order.
std::vector<int> ranks_that_can_share(int shards);

}  // namespace lockstep
