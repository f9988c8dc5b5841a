#include "apps/lockstep-run/supervised_checkpoints.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <lockstep/base/error.hpp>

#include "checkpoint/checkpoint_folder.hpp"

namespace lockstep::run {
namespace {

std::optional<int> shards_of(const TrainingFacts& training) {
  const auto fact = std::ranges::find(training, "shards", &TrainingFacts::value_type::first);
  if (fact == training.end()) return std::nullopt;
  const std::string_view text = fact->second;
  int shards = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), shards);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional{shards} : std::nullopt;
}

}  // namespace

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
      seen.shards = shards_of(manifest->training);
  } catch (const CheckpointError&) {
  }
  return seen;
}

}  // namespace lockstep::run
