// What happened when in a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/lockstep-report/lines.hpp"

namespace lockstep::report {

struct Event {
  std::string kind;  ///< start, checkpoint, evaluation, stop, failure or end
  double time = 0;   ///< seconds since 1970
  std::int64_t start = 1;
  std::int64_t step = -1;  ///< negative if it has none
  std::int64_t ranks = 0;  ///< of a start
  double seconds = 0;      ///< that it took, up to `time`
  std::string text;        ///< the path of a checkpoint, the line of a failure
  std::int64_t exit_code = 0;
};

struct Timeline {
  std::vector<Event> events;  ///< in the order of their times
  std::int64_t starts = 0;
  ReadLines lines;
};

/// Throws as for_each_line.
Timeline read_timeline(const std::filesystem::path& path);

/// All events, or about `most` of a kind that has more, spread over the run.
std::vector<Event> thinned(const std::vector<Event>& events, std::size_t most);

}  // namespace lockstep::report
