// The folder of checkpoints before a training reads or writes anything in it.
#pragma once

#include <memory>

#include "apps/lockstep-train/options/training_options.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep {

/// LOCAL. From here on, this process has the folder of checkpoints, which `options` name, for its job alone. Null if
/// that fails, and checkpoints are optional. ConfigError if another process uses it, or if no checkpoint can be written
/// there: the first may be due after hours.
std::shared_ptr<ExclusiveUse> lock_folder_of_checkpoints(const TrainingOptions& options);

/// LOCAL. CheckpointError if so many ranks cannot share the shards of the checkpoint to resume; the message lists the
/// numbers that can.
void require_ranks_that_can_resume(const TrainingOptions& options, int ranks);

}  // namespace lockstep
