// Reading checkpoints beside a training that writes new ones and removes old ones: what was removed or replaced
// meanwhile is not damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/failure.hpp"

namespace lockstep {

/// Tells a folder from another one that has taken its name.
using FolderIdentity = std::pair<std::uint64_t, std::uint64_t>;

/// Nothing if `path` leads to nothing.
std::optional<FolderIdentity> folder_identity(const std::filesystem::path& path);

/// Whether nothing is called `path`, not even a link that leads to nothing.
bool is_gone(const std::filesystem::path& path);

/// Where `path` leads now: a link is followed, and `latest` and `best` are found in their folder where the file system
/// has no links, or where they lead to nothing. Otherwise `path`.
std::filesystem::path checkpoint_at(const std::filesystem::path& path);

/// Whether it says that a file which is there could not be read. That is no damage for which an older checkpoint makes
/// up: the next reading may succeed.
bool is_read_failure(const CheckpointError& error);

/// How often a reader begins anew when a writer was in its way.
inline constexpr int most_readings = 20;

/// What `read` returns for the checkpoint that `path` leads to. If it throws a CheckpointError, and `path` leads to
/// another one by then, calls it for that. CheckpointError that it throws, or that says that the checkpoint was removed
/// or replaced meanwhile.
template <class Read>
auto read_checkpoint_at(const std::filesystem::path& path, Read&& read) {
  for (int reading = 1;; ++reading) {
    const std::filesystem::path checkpoint = checkpoint_at(path);
    const auto before = folder_identity(checkpoint);
    try {
      return read(checkpoint);
    } catch (const CheckpointError&) {
      const std::filesystem::path now = checkpoint_at(path);
      const auto after = folder_identity(now);
      if (now == checkpoint && after == before) throw;
      if (!after) fail_checkpoint(checkpoint.string(), "was removed while it was read, as by a training that goes on");
      if (reading == most_readings) fail_checkpoint(checkpoint.string(), "was replaced repeatedly while it was read");
    }
  }
}

/// What `read` returns for the newest checkpoint in `folder` for which it throws no CheckpointError; those that it
/// throws go to `passed_over`, unless the checkpoint was removed or replaced meanwhile. Nothing if there is no
/// checkpoint. CheckpointError if it throws one for each of them, or one that is a read failure.
template <class Read>
auto read_newest(const std::filesystem::path& folder, Read&& read,
                 const std::function<void(const CheckpointError&)>& passed_over)
    -> std::optional<std::invoke_result_t<Read, const std::filesystem::path&>> {
  std::set<std::filesystem::path> told;
  for (int reading = 1;; ++reading) {
    const auto checkpoints = checkpoints_in(folder);
    std::string reason;  // of the newest
    bool changed = false;
    for (const std::filesystem::path& checkpoint : checkpoints) {
      const auto before = folder_identity(checkpoint);
      try {
        return read(checkpoint);
      } catch (const CheckpointError& error) {
        changed = reading < most_readings && (is_gone(checkpoint) || folder_identity(checkpoint) != before);
        if (changed) break;
        if (is_read_failure(error)) throw;
        if (told.insert(checkpoint).second) passed_over(error);
        if (reason.empty()) reason = error.what();
      }
    }
    if (changed) continue;
    if (checkpoints.size() > 1)
      reason += fmt::format("; none of the {} checkpoints in {} can be restored", checkpoints.size(), folder.string());
    if (!checkpoints.empty()) throw CheckpointError{reason};
    return std::nullopt;
  }
}

}  // namespace lockstep
