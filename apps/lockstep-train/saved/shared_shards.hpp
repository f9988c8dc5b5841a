// Which numbers of ranks can go on with the shards of a training.
#pragma once

#include <optional>
#include <string>

#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// The number of shards among the facts of a training; nothing if there is none that a training can have.
std::optional<int> shards_in(const TrainingFacts& training);

/// Whether so many ranks can share so many shards.
bool can_share(int shards, int ranks);

/// How many ranks can share them: "1 to 8 ranks".
std::string ranks_that_can_share(int shards);

}  // namespace lockstep
