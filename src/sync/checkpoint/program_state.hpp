// What a checkpoint holds besides tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>

namespace lockstep {

using TrainingFacts = CheckpointManager::Facts;

/// The loss that a training had at a checkpoint.
struct CheckpointLoss {
  std::int64_t step = 0;
  double loss = 0;
  bool operator==(const CheckpointLoss&) const = default;
};

using ProgramState = CheckpointManager::State;

/// Named texts in UTF-8 about a program's weights, for other programs that use them. The name "writer" is
/// lockstep's own.
using WeightsMetadata = std::map<std::string, std::string>;

}  // namespace lockstep
