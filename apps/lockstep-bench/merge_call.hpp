// The price of a merge_call: what it costs that all ranks agree before they do anything together.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct MergeCallOptions {
  static constexpr const char* name = "merge-call";

  std::int64_t merges = 1000;
  std::int64_t steps = 0;  ///< none
  std::int64_t warm_up = 5;
  std::int64_t iterations = 50;
};

/// COLL. Each iteration times, in turn, a `run` of `merges` merge_calls that do nothing, a `run` without any, and
/// `merges` bare MPI_Allreduce calls of 16 bytes. The price of a merge_call is (the first - the second) / merges. `add`
/// gets one row, the same on every rank. With `steps`, an iteration also times as many runs of one merge_call each,
/// which make two agreements like a training step. The row then has the time of one (`step`), and that over two bare
/// calls (`of_two`), instead of the cost of a run without any merge_call.
///
/// Returns what was wrong, the same on every rank; empty if each merge_call was one agreement, of 16 bytes a round.
[[nodiscard]] std::string bench_merge_call(Runtime& runtime, const MergeCallOptions& options, const AddRow& add);

}  // namespace lockstep::bench
