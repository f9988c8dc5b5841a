// What a training is, for its checkpoints: only the same training goes on from them.
#pragma once

#include <cstdint>

#include "apps/lockstep-train/options/training_options.hpp"
#include "checkpoint/program_state.hpp"

namespace lockstep {

/// What a model is, besides the shapes of its variables. The number of classes must be filled in.
TrainingFacts model_facts(const TrainingOptions& options);

/// Everything that the bits of a training depend on, besides the machine. The number of steps is among it only where
/// the learning rate depends on it, so that a training can be made longer. All defaults in `options` must be filled in.
TrainingFacts training_facts(const TrainingOptions& options, const FitOptions& fit, std::uint64_t data_digest);

}  // namespace lockstep
