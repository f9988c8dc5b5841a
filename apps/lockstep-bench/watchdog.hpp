// What it costs to be watched: what a rank writes down as it goes, and the thread that looks after the others.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct WatchdogOptions {
  static constexpr const char* name = "watchdog";

  std::int64_t seconds = 5;
};

/// COLL. The time of a change of phase, of an agreement's two changes with its tag, and of a bare store to an atomic of
/// the same memory; and the share of a core that the watchdog's thread took over `seconds` in which the rank did
/// nothing else. Of each the largest over the ranks; `add` gets one row, on every rank the same.
///
/// Returns what was wrong, on every rank the same; empty where every rank has a watchdog.
[[nodiscard]] std::string bench_watchdog(Runtime& runtime, const WatchdogOptions& options, const AddRow& add);

}  // namespace lockstep::bench
