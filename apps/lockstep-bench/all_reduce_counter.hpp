// Counts the library's all-reduces over MPI.
#pragma once

#include <algorithm>
#include <cstdint>

#include "apps/lockstep-bench/all_reduce_listener.hpp"

namespace lockstep::bench {

/// Calls of MPI_Allreduce on this rank, on any communicator.
struct AllReduceCalls {
  std::int64_t calls = 0;
  std::int64_t smallest_bytes = 0;  ///< of one call; both 0 before the first
  std::int64_t largest_bytes = 0;
};

/// Adds the calls made during its lifetime to `calls`.
class AllReduceCounter final : public AllReduceListener {
 public:
  explicit AllReduceCounter(AllReduceCalls& calls) : calls_{calls} {}

  void on_begin(std::int64_t bytes) override {
    calls_.smallest_bytes = calls_.calls == 0 ? bytes : std::min(calls_.smallest_bytes, bytes);
    calls_.largest_bytes = std::max(calls_.largest_bytes, bytes);
    ++calls_.calls;
  }

 private:
  AllReduceCalls& calls_;
};

}  // namespace lockstep::bench
