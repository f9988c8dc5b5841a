// What a run has saved, beside what it computes when it is computed again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/models/fit/observer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "sync/checkpoint/manifest.hpp"

namespace lockstep {

/// The checkpoints of a run that are still there, and its exported weights. Every method is COLL; only the chief reads.
class RecordedFiles {
 public:
  struct Places {
    std::filesystem::path checkpoints;  ///< their folder; empty if there is none
    std::filesystem::path weights;      ///< exported at the end; empty if they were not
  };

  /// Manifests must say what `expected` does. The training makes `steps` steps. CheckpointError if a manifest is
  /// damaged.
  RecordedFiles(Strategy& strategy, const Places& places, Manifest expected, std::int64_t steps);

  /// After a step. In what a file that was saved after it differs from what the strategy holds; empty if in nothing.
  /// CheckpointError for a file that is damaged.
  std::string difference_after(const Observer::State& state);

  // So far.
  std::int64_t checkpoints() const { return checkpoints_; }
  bool has_weights() const { return has_weights_; }

 private:
  Strategy& strategy_;
  Places places_;  ///< as the chief has them
  Manifest expected_;
  std::int64_t steps_;
  std::vector<std::int64_t> saved_;  ///< after which steps
  std::int64_t checkpoints_ = 0;
  bool has_weights_ = false;
};

}  // namespace lockstep
