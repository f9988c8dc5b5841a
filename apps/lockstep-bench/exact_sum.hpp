// The price of exactness: exact sums beside sums in the fixed order, and beside reading the numbers.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"

namespace lockstep::bench {

struct ExactSumOptions {
  static constexpr const char* name = "exact-sum";

  std::int64_t bytes = 1 << 20;         ///< of an array that the ranks add up
  std::int64_t local_bytes = 64 << 20;  ///< of the numbers that a rank adds up by itself
  std::int64_t warm_up = 5;
  std::int64_t iterations = 50;
};

/// COLL. Each iteration times, in turn, a plain sum and an exact one of the same numbers. Of one f64 over all ranks,
/// Group::all_reduce in the fixed order, by ReduceOp::exact_sum, and of an ExactSum; of arrays of f64 and f32, the
/// first two; and on every rank alone, reading numbers, and ExactSum::add of them. Arrays and numbers are of like size,
/// half of them zeros, or of any exponent. `add` gets a row for each, the same on every rank.
///
/// Returns what was wrong, the same on every rank; empty if every exact sum was right.
[[nodiscard]] std::string bench_exact_sum(Runtime& runtime, const ExactSumOptions& options, const AddRow& add);

}  // namespace lockstep::bench
