// Whether files hold what a program has computed again.
#pragma once

#include <filesystem>
#include <string>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

// Both are COLL and blocking, in cross-replica context or the default one, with sealed variables. Only the chief reads;
// CheckpointError there for files that cannot be read, are damaged, or hold other names, types or shapes, and PeerError
// with the same words on the others. They return the first thing that is not as it would be saved now, such as
// "run1/checkpoints/step-4/weights.safetensors has another value of 'dense_0/weight'", and nothing if all is.

/// Of a checkpoint. Its manifest must have the facts, the kernels, the state and the metadata of `expected`. One that
/// is gone has no difference.
std::string difference_of_checkpoint(Strategy& strategy, const std::filesystem::path& checkpoint,
                                     const Manifest& expected, Here here = Here::current());

/// Of a file of weights with such metadata.
std::string difference_of_weights(Strategy& strategy, const std::filesystem::path& file,
                                  const WeightsMetadata& expected, Here here = Here::current());

}  // namespace lockstep
