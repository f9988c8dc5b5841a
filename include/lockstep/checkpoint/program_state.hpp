// What a checkpoint holds besides tensors, as texts.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// What a training is, in words: {"seed", "1"}, {"model", "mlp 784-512-512-10 f32"}. In the order in which a difference
/// is to be told.
using TrainingFacts = std::vector<std::pair<std::string, std::string>>;

/// What a program keeps besides its variables.
using ProgramState = std::map<std::string, std::string>;

}  // namespace lockstep
