// How fast the library adds tensors up over the ranks, compared with MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct AllReduceOptions {
  static constexpr const char* name = "all-reduce";

  /// Sizes double from the first up to the second.
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  DType dtype = DType::f32;
  std::int64_t warm_up = 5;
  std::int64_t iterations = 20;
  /// Measures, in the same run, tensors in ordinary memory, and how fast all ranks at once copy and add
  /// (bandwidth.hpp).
  bool limit = false;
  /// If set, nothing is measured: the way of a sum of so many bytes is reported.
  std::optional<std::int64_t> explain = {};
};

/// COLL. Measures the reductions of the strategy's group, on tensors where the store keeps gradients, against
/// MPI_Allreduce of as many bytes in host memory. The two take turns, in place, on fresh inputs for every iteration.
/// Every sum is compared with the exact one. `add` gets a row for each size, the same on every rank.
///
/// Returns what was wrong, the same on every rank; empty if nothing was. ConfigError for more bytes than the host has
/// memory for.
[[nodiscard]] std::string bench_all_reduce(Runtime& runtime, const AllReduceOptions& options, const AddRow& add);

}  // namespace lockstep::bench
