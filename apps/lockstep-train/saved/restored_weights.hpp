// The weights of a model that is used, not trained.
#pragma once

#include <cstdint>
#include <filesystem>

#include <lockstep/checkpoint/program_state.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "apps/lockstep-train/training.hpp"

namespace lockstep {

struct RestoredWeights {
  std::filesystem::path from;
  std::int64_t steps = 0;  ///< after which they were saved; 0 if that is not known
};

/// COLL. Seals the variables and gives them the initial weights that `options` name. Returns what these say of their
/// model. CheckpointError if they cannot be read or do not match.
WeightsMetadata initialize_weights(Strategy& strategy, const TrainingOptions& options);

/// COLL. Seals the variables and gives them the values that `options` name. ConfigError if they name none,
/// CheckpointError if there are none, or none of this model.
RestoredWeights restore_weights(Strategy& strategy, const TrainingOptions& options);

}  // namespace lockstep
