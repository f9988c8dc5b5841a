// What a checkpoint holds besides tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Describes a training run: {"seed", "1"}, {"model", "mlp 784-512-512-10 f32"}. The first fact that differs is the one
/// that a message names.
using TrainingFacts = std::vector<std::pair<std::string, std::string>>;

/// The loss that a training had at a checkpoint.
struct CheckpointLoss {
  std::int64_t step = 0;
  double loss = 0;
  bool operator==(const CheckpointLoss&) const = default;
};

/// What a program keeps besides its variables.
using ProgramState = std::map<std::string, std::string>;

/// Named texts in UTF-8 about a program's weights, for other programs that use them. The name "writer" is
/// lockstep's own.
using WeightsMetadata = std::map<std::string, std::string>;

}  // namespace lockstep
