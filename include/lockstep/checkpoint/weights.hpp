// The weights of a model by themselves, in a file that other programs read and write too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/control/tag.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep {

// A file of weights is a checkpoint (checkpoint.hpp) without the state of optimizers.

/// COLL, blocking. As save_checkpoint, but writes the variables alone.
void save_weights(Strategy& strategy, const std::filesystem::path& path, Here here = Here::current());

/// What `load_weights` did.
struct LoadedWeights {
  std::filesystem::path file;
  std::int64_t taken = 0;  ///< variables that got a value
  /// What of variables and file did not match, in words: "has no 'b', and has 'c', which no variable is called". Empty
  /// if everything did.
  std::string rest;
};

/// COLL, blocking. Gives each variable the value that the file has under its name, with its type and shape, on every
/// rank; the others keep theirs. Only the chief reads the file. `path` is a file, or a checkpoint of CheckpointManager,
/// whose digests are then checked. The variables must be sealed (else ContextError), in cross-replica context or the
/// default one. MismatchError if ranks name different paths. CheckpointError on the chief if the file cannot be read,
/// and PeerError with the same words on the others; then nothing changes.
LoadedWeights load_weights(Strategy& strategy, const std::filesystem::path& path, Here here = Here::current());

}  // namespace lockstep
