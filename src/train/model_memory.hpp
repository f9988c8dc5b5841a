// Whether a model fits into the memory of a node.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/train/training.hpp>

namespace lockstep {

/// Numbers of elements. Not integers: they may be anything.
struct ModelSize {
  double weights = 0;
  double activations = 0;  ///< of one shard, as far as they count
};

/// ConfigError where the node has less memory than one rank needs: the system may promise it, and kill ranks that use
/// it. `what` names the options that the size comes from, and `expected` says what to do about it.
void require_memory(const TrainingOptions& options, const ModelSize& size, const std::string& what,
                    const std::string& expected);

}  // namespace lockstep
