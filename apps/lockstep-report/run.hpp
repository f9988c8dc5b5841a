// A run: what its folder says of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep-report/metrics.hpp"
#include "apps/lockstep-report/timeline.hpp"

namespace lockstep::report {

struct Run {
  explicit Run(std::size_t most_points) : metrics{most_points} {}

  std::string name;  ///< differs from those of the other runs
  std::filesystem::path path;
  OrderedJson record;  ///< run.json; null without one
  Metrics metrics;
  std::optional<Timeline> timeline;  ///< none without a file
  std::vector<std::string> notes;    ///< what is missing or could not be read

  /// Of the timeline, which is sorted; null without one.
  const Event* last(const char* kind) const;
  /// "ended", "stopped early", "failed", "not ended", or empty if nothing is known.
  std::string state() const;
};

/// The runs at `paths`, each a folder of a run or a file of metrics. What is missing, cut off or of another version
/// becomes a note. ConfigError for a path where there is nothing of a run.
std::vector<Run> read_runs(const std::vector<std::filesystem::path>& paths);

/// Names for `paths`: their last parts, with as many of the parts before as tell them apart, or numbers for those that
/// are equal.
std::vector<std::string> names_of(const std::vector<std::filesystem::path>& paths);

}  // namespace lockstep::report
