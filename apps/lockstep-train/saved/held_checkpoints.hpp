// The folder of checkpoints before a training reads or writes anything in it.
#pragma once

#include <memory>

#include <lockstep/strategy/strategy.hpp>

#include "apps/lockstep-train/training.hpp"
#include "checkpoint/exclusive_use.hpp"

namespace lockstep {

/// COLL. From here on, the chief has the folder of checkpoints for this job alone. Null on the others, and if there is
/// none. ConfigError if another process uses it, or if no checkpoint can be written there: the first may be due after
/// hours.
std::shared_ptr<ExclusiveUse> hold_checkpoints(Strategy& strategy, const TrainingOptions& options);

/// COLL. CheckpointError if this number of ranks cannot share the shards of the checkpoint to resume; the message lists
/// the numbers that can.
void require_ranks_that_can_resume(Strategy& strategy, const TrainingOptions& options);

}  // namespace lockstep
