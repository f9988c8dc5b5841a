// The weights of a model by themselves, in a file that other programs read and write too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

// A file of weights is a checkpoint (checkpoint.hpp) without the state of optimizers, and with metadata for other
// programs: named UTF-8 texts about the weights, in the entry __metadata__ of its header. lockstep reserves the name
// "writer". In a checkpoint of CheckpointManager, the manifest holds them too.

/// COLL, blocking. As save_checkpoint, but writes the variables alone, and with them the `metadata` of the chief.
/// InvalidArgument, before any communication, for metadata that are not UTF-8 or called "writer".
LOCKSTEP_API void save_weights(Strategy& strategy, const std::filesystem::path& path,
                               const std::map<std::string, std::string>& metadata = {}, Here here = Here::current());

/// COLL, blocking, in cross-replica context or the default one. The metadata of a file of weights, of a checkpoint, or
/// of the newest one in a folder of them whose manifest can be read and whose files have the sizes that it gives;
/// nothing if none of these is at `path`. No variable need exist, so a program can build its model by what they say.
/// Only the chief reads. MismatchError if ranks name different paths. CheckpointError on the chief if what is at `path`
/// cannot be read, and PeerError with the same words on the others.
LOCKSTEP_API std::optional<std::map<std::string, std::string>> read_weights_metadata(Strategy& strategy,
                                                                                     const std::filesystem::path& path,
                                                                                     Here here = Here::current());

namespace detail {

/// What `load_weights` did.
struct LoadedWeights {
  std::filesystem::path file;
  std::int64_t taken = 0;  ///< variables that got a value
  /// Describes mismatches between variables and file: "has no 'b', and has 'c', which no variable is called". Empty if
  /// everything matched.
  std::string rest;
  std::map<std::string, std::string> metadata;
};

}  // namespace detail

/// COLL, blocking. Gives each variable the value that the file has under its name, with its type and shape, on every
/// rank; the others keep theirs. Only the chief reads the file. `path` is a file, or a checkpoint of CheckpointManager,
/// whose digests and metadata are then checked. The variables must be sealed (else ContextError), in cross-replica
/// context or the default one. MismatchError if ranks name different paths. CheckpointError on the chief if the file
/// cannot be read, and PeerError with the same words on the others; then nothing changes.
LOCKSTEP_API detail::LoadedWeights load_weights(Strategy& strategy, const std::filesystem::path& path,
                                                Here here = Here::current());

/// LOCAL, blocking. xxHash64 over the little-endian bytes of the variables, in the given order.
LOCKSTEP_API std::uint64_t weights_digest(const detail::VariableList& variables);

}  // namespace lockstep
