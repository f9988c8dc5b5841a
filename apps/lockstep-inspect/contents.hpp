// What lies at a path: a checkpoint, or a file of tensors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// What was found out, for stdout.
struct Report {
  std::string text;
  /// Empty if all is well; otherwise what is not, in one line.
  std::string trouble = {};
};

/// A name and its value, as a line shows them.
using Fact = std::pair<std::string, std::string>;

/// The width of a column of names that had `width` and gets `name`. A very long name goes beyond it: all lines would be
/// as long.
inline std::size_t widened(std::size_t width, std::string_view name) {
  constexpr std::size_t widest = 80;
  return std::max(width, std::min(name.size(), widest));
}

struct Contents {
  std::filesystem::path path;
  std::optional<Manifest> manifest;            ///< a checkpoint has one
  std::vector<std::filesystem::path> tensors;  ///< files of them
};

/// The checkpoints in the folder `path`, the newest first; none if it is something else. ConfigError if there is
/// nothing at `path`.
std::vector<std::filesystem::path> checkpoints_at(const std::filesystem::path& path);

/// The metadata in the order of their names.
std::vector<Fact> facts_of(const WeightsMetadata& metadata);

/// What the manifest says besides files.
std::vector<Fact> facts_of(const Manifest& manifest);

/// CheckpointError for a checkpoint without a manifest that can be read, or with files of other sizes than it gives.
Contents contents_of(const std::filesystem::path& path);

/// As contents_of, but a path that is no folder is a CheckpointError too: the result has a manifest.
Contents contents_of_checkpoint(const std::filesystem::path& path);

}  // namespace lockstep
