// The price of a request: what it costs that a group works while the program goes on.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct RequestOptions {
  static constexpr const char* name = "requests";

  /// Sizes double from the first up to the second.
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = 64 << 20;
  std::int64_t warm_up = 5;
  std::int64_t iterations = 20;
};

/// COLL. Each iteration times, in turn, Group::all_reduce, and Group::submit_all_reduce with a wait for it, of the same
/// tensor in ordinary memory. Then the last rank comes late: `cpu` is what the process of another one takes meanwhile,
/// beside a thread that sleeps. `add` gets a row for each size, the same on every rank.
///
/// Returns what was wrong, the same on every rank; empty if every sum was exact.
[[nodiscard]] std::string bench_requests(Runtime& runtime, const RequestOptions& options, const AddRow& add);

}  // namespace lockstep::bench
