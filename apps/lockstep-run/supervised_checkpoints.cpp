#include "apps/lockstep-run/supervised_checkpoints.hpp"

#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/saved/shared_shards.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"

namespace lockstep::run {
namespace {

/// Its name, and what tells it from another one that had the name: the number of a folder that is gone may be used
/// again. Empty if it is not there.
std::string identity_of(const std::filesystem::path& checkpoint) {
  struct stat status = {};
  if (::stat(checkpoint.c_str(), &status) != 0) return {};
  return fmt::format("{} {} {}.{:09}", checkpoint.filename().string(), status.st_ino, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec);
}

}  // namespace

SupervisedCheckpoints::SupervisedCheckpoints(std::filesystem::path folder) : folder_{std::move(folder)} {
  if (folder_.empty()) return;
  try {
    for (const std::filesystem::path& each : checkpoints_in(folder_)) at_first_.insert(identity_of(each));
  } catch (const CheckpointError&) {  // the job says it itself
  }
}

std::string SupervisedCheckpoints::newest_made() const {
  if (folder_.empty()) return {};
  const std::filesystem::path latest = folder_ / latest_link, checkpoint = checkpoint_at(latest);
  std::string identity = checkpoint == latest ? std::string{} : identity_of(checkpoint);
  return at_first_.contains(identity) ? std::string{} : identity;
}

SeenCheckpoints SupervisedCheckpoints::seen() const {
  SeenCheckpoints seen{.written = !newest_made().empty(), .shards = {}};
  if (folder_.empty()) return seen;
  try {
    // The job itself says which ones it passes over.
    if (const auto manifest = read_newest(folder_, read_manifest, [](const CheckpointError&) {}))
      seen.shards = shards_in(manifest->training);
  } catch (const CheckpointError&) {
  }
  return seen;
}

}  // namespace lockstep::run
