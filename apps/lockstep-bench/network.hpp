// What the links between ranks carry, and how much of it a sum over the ranks uses.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct NetworkOptions {
  static constexpr const char* name = "network";

  /// Sizes double from the first up to the second.
  std::int64_t min_bytes = 64 << 10;
  std::int64_t max_bytes = 4 << 20;
  std::int64_t warm_up = 1;
  std::int64_t iterations = 5;
  /// Where TCP streams go, as RuntimeOptions::network.
  std::string network;
};

/// In microseconds.
struct SumTimes {
  double sum = 0;
  double latency = 0;  ///< of a small MPI message from the first rank to the last one
};

/// COLL. Medians over sums of `bytes` that follow each other directly: after other traffic, or a pause, TCP begins
/// slowly. The same on every rank. Error if a sum is wrong.
SumTimes measure_sums(Runtime& runtime, std::int64_t bytes, std::int64_t warm_up, std::int64_t iterations);

/// COLL. Measures, in turns, plain TCP streams, MPI and the reductions of the strategy's group on tensors where the
/// store keeps gradients. One way, the first rank sends to the last one until that has all. Both ways, each rank sends
/// to every other one, twice, what a sum of as many bytes sends. `add` gets a row for each size, the same on every
/// rank.
///
/// Returns what was wrong, the same on every rank; empty if nothing was. ConfigError if the job has one rank.
[[nodiscard]] std::string bench_network(Runtime& runtime, const NetworkOptions& options, const AddRow& add);

}  // namespace lockstep::bench
