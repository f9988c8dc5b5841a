// Whether a training may go on from a checkpoint: how the training there differs from this one.
#pragma once

#include <string>
#include <vector>

#include "apps/lockstep-train/options/training_options.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// In what the training of a checkpoint, with facts `there`, differs from this one, beyond what `overrides` makes this
/// one's own; empty if in nothing. Says too what would make them agree, if that is known. Facts that older versions
/// wrote are read. Logs what is overridden.
std::string training_difference(const TrainingFacts& there, const TrainingFacts& here,
                                const std::vector<Resume::Override>& overrides);

}  // namespace lockstep
