// How the cost of lockstep grows with the ranks: its control and reduction code on simulated ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct ScaleOptions {
  static constexpr const char* name = "scale";

  std::vector<int> ranks{2, 8, 64, 512, 4096};
  int ranks_per_node = 8;
  std::vector<std::int64_t> bytes{8, 1 << 20};  ///< of sums
  std::int64_t gradient_bytes = 64 << 10;       ///< of a step
  double delay = 0.005;                         ///< from one node to another, in milliseconds
  double rate = 1250;                           ///< of a node's wire, in MB/s
  std::uint64_t seed = 0;
  int watched = 512;  ///< up to so many ranks, their watchdogs run as well
};

/// LOCAL, on a job of one rank: ConfigError in others. For each number of ranks, `add` gets a row for the start of
/// their job, an agreement, a sum of each size, a step, a death in the middle of an agreement and a stop there: what
/// the rank sends that sends most, and the mean, and how long all of it takes in virtual time. Then for their
/// watchdogs: heartbeats in a second, and how long after a rank's end, and after its stop, somebody says so.
///
/// Returns what was wrong: a sum, a rank that did not get to know who had died, or a rank that was not named once.
/// Empty if nothing was.
[[nodiscard]] std::string bench_scale(Runtime& runtime, const ScaleOptions& options, const AddRow& add);

}  // namespace lockstep::bench
