#include "apps/lockstep-run/supervised_checkpoints.hpp"

#include <system_error>
#include <utility>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-train/saved/shared_shards.hpp"
#include "checkpoint/checkpoint_folder.hpp"

namespace lockstep::run {

SupervisedCheckpoints::SupervisedCheckpoints(std::filesystem::path folder)
    : folder_{std::move(folder)}, at_first_{newest()} {}

std::string SupervisedCheckpoints::newest() const {
  std::error_code none;
  return folder_.empty() ? std::string{} : std::filesystem::read_symlink(folder_ / "latest", none).string();
}

SeenCheckpoints SupervisedCheckpoints::seen() const {
  SeenCheckpoints seen{.written = newest() != at_first_, .shards = {}};
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
