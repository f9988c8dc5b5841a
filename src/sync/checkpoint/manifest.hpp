// The manifest of a checkpoint: what the folder holds, and of which training it is. Pure; checkpoint_folder.hpp has the
// files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

struct Manifest {
  /// A file of tensors.
  struct File {
    std::string name;
    std::uint64_t bytes = 0;
    std::vector<std::pair<std::string, std::uint64_t>> digests;  ///< of each tensor's elements
    bool operator==(const File&) const = default;
  };

  std::int64_t step = 0;
  std::optional<CheckpointLoss> best;  ///< the checkpoint with the lowest loss so far
  TrainingFacts training;
  std::string kernels;
  std::string compression;  ///< of gradients between nodes; empty if there was none
  ProgramState state;
  WeightsMetadata metadata;  ///< of the file of weights
  std::vector<File> files;
  std::string program = "lockstep " LOCKSTEP_VERSION;  ///< which wrote it
  bool operator==(const Manifest&) const = default;

  /// Null if there is none of that name.
  const File* file(std::string_view name) const;
};

/// As JSON, with the version of the format.
std::string to_json(const Manifest& manifest);

/// The opposite. CheckpointError, which names `source`, for any fault, and for a newer format.
Manifest parse_manifest(std::string_view json, std::string_view source);

/// In what `there`, which a checkpoint has, differs from `here`: "is of a training with seed 1, and this one has seed
/// 2". Empty if in nothing.
std::string difference(const TrainingFacts& there, const TrainingFacts& here);

}  // namespace lockstep
