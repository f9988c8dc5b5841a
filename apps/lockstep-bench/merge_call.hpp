// What it costs that all ranks agree before they do anything together: the price of a merge_call.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct MergeCallOptions {
  static constexpr const char* name = "merge-call";

  std::int64_t merges = 1000;
  std::int64_t warm_up = 5;
  std::int64_t iterations = 50;
};

/// COLL. In turns, in each iteration: a `run` of `merges` merge_calls that do nothing, a `run` without any, and as many
/// bare MPI_Allreduce of 16 bytes as merge_calls. The price of a merge_call is (the first - the second) / merges. `add`
/// gets one row, on every rank the same.
///
/// Returns what was wrong, on every rank the same; empty where each merge_call was one MPI_Allreduce of 16 bytes.
[[nodiscard]] std::string bench_merge_call(Runtime& runtime, const MergeCallOptions& options, const AddRow& add);

}  // namespace lockstep::bench
