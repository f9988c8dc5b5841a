#include "apps/lockstep-train/saved/locked_checkpoints.hpp"

#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/saved/shared_shards.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"
#include "sync/checkpoint/folder.hpp"
#include "sync/checkpoint/folder_lock.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, std::string_view what) {
  throw ConfigError{fmt::format("--checkpoint-dir {}: {}", folder.string(), what)};
}

/// Where a link to a checkpoint belongs; a copy of the folder may have made another one of each.
void require_no_folder_as_link(const fs::path& folder) {
  for (const char* link : {"latest", "best"}) {
    std::error_code none;
    if (fs::symlink_status(folder / link, none).type() == fs::file_type::directory)
      fail(folder, fmt::format("'{}' in it is a folder; expected a symbolic link to a checkpoint, or nothing", link));
  }
}

/// The manifest of the checkpoint to resume. Nothing if there is none, or one that cannot be read, which is told later.
std::optional<std::pair<fs::path, Manifest>> manifest_to_resume(const TrainingOptions& options) {
  const auto read = [](const fs::path& each) { return std::pair{each, read_checkpoint(each)}; };
  try {
    if (options.resume.from == Resume::From::newest)
      return read_newest(options.checkpoints, read, [](const CheckpointError&) {});
    return read_checkpoint_at(options.resume.path, read);
  } catch (const CheckpointError&) {
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<ExclusiveUse> lock_folder_of_checkpoints(const TrainingOptions& options) {
  const fs::path& folder = options.checkpoints;
  const std::string name = "--checkpoint-dir " + folder.string();
  if (!options.checkpoints_optional) require_writable_folder(folder, name);
  std::shared_ptr<ExclusiveUse> use;
  try {
    use = lock_folder(folder, name);
  } catch (const CheckpointError&) {
    // The manager of optional ones warns of it.
    if (!options.checkpoints_optional) throw;
  }
  require_no_folder_as_link(folder);
  return use;
}

void require_ranks_that_can_resume(const TrainingOptions& options, int ranks) {
  const auto found = manifest_to_resume(options);
  const auto shards = found ? shards_in(found->second.training) : std::nullopt;
  if (!shards || can_share(*shards, ranks)) return;
  throw CheckpointError{
      fmt::format("checkpoint {}: is of a training with {} shards, which {} ranks cannot share; expected {}",
                  found->first.string(), *shards, ranks, ranks_that_can_share(*shards))};
}

}  // namespace lockstep
