// What it costs to be watched: what a rank records as it goes, and the thread that watches the others.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct WatchdogOptions {
  static constexpr const char* name = "watchdog";

  std::int64_t seconds = 5;
};

/// COLL. Measures the time of a change of phase, of an agreement's two changes with its tag, and of a bare store to an
/// atomic of the same memory; and the share of a core that the watchdog's thread took over `seconds` in which the rank
/// did nothing else. Each is the largest over the ranks. `add` gets one row, the same on every rank.
///
/// Returns what was wrong, the same on every rank; empty if every rank has a watchdog.
[[nodiscard]] std::string bench_watchdog(Runtime& runtime, const WatchdogOptions& options, const AddRow& add);

}  // namespace lockstep::bench
