// How fast the matrix products of a training step are, with lockstep's kernels and with the BLAS libraries of this
// machine.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step.hpp"

namespace lockstep::bench {

struct ArithmeticOptions {
  static constexpr const char* name = "arithmetic";

  /// The model, its hidden units, global batch and shards.
  StepOptions step;
  std::int64_t warm_up = 1;
  std::int64_t iterations = 15;
};

/// COLL, on the CPU. All ranks compute the products of one of them at the same time, each on one thread. `add` gets a
/// row for each product and one for all of them, the same on every rank: the rates, in 10^9 floating-point operations
/// per second, of the kernels that a training would take and of each library of blas_libraries() on this rank's host.
/// They take turns. A rate belongs to the median over the iterations of the slowest rank's
/// processor time. The last column is
/// the kernels' share of processor_peak(), 0 where that is not known.
///
/// Returns what was wrong, the same on every rank; empty if nothing was. ConfigError, naming --shards, for a number of
/// shards that does not fit the ranks.
[[nodiscard]] std::string bench_arithmetic(Runtime& runtime, const ArithmeticOptions& options, const AddRow& add);

}  // namespace lockstep::bench
