// The file for the weights of a run.
#pragma once

#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep {

/// LOCAL. ConfigError if the file for the weights, if there is to be one, cannot be written: better before a training
/// than after it.
void require_exportable(const TrainingOptions& options);

}  // namespace lockstep
