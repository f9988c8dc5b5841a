// The weights of a run in a file of their own.
#pragma once

#include <lockstep/strategy/strategy.hpp>

#include "apps/lockstep-train/tasks/task.hpp"
#include "apps/lockstep-train/training.hpp"

namespace lockstep {

/// LOCAL, on the chief. ConfigError if the file for the weights, if there is to be one, cannot be written: better
/// before a training than after it.
void require_exportable(const TrainingOptions& options);

/// COLL. Writes the file, if there is to be one, with what rebuilds the model of `task`.
void export_weights(Strategy& strategy, const TrainingOptions& options, const TrainingTask& task);

}  // namespace lockstep
