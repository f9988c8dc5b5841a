// Whether a model fits into a node's memory.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/train/training.hpp>

namespace lockstep {

/// Numbers of elements. Not integers, because they may exceed any integer type.
struct ModelSize {
  double weights = 0;
  double activations = 0;  ///< for one shard; only those that matter
};

/// LOCAL. ConfigError if the node has less memory than one rank needs; the system may promise it anyway, and then kill
/// ranks that use it. `what` names the options that the size comes from, and `expected` says what to do about it.
void require_memory(const TrainingOptions& options, const ModelSize& size, const std::string& what,
                    const std::string& expected);

}  // namespace lockstep
