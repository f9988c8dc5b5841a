// Counts the all-reduces that the library makes of MPI, by MPI's profiling interface: this program has an
// MPI_Allreduce of its own, which the library's calls find first, and which passes them on to PMPI_Allreduce.
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Calls of MPI_Allreduce on this rank, on any communicator.
struct AllReduceCalls {
  std::int64_t calls = 0;
  std::int64_t smallest_bytes = 0;  ///< of one call; both 0 while there was none
  std::int64_t largest_bytes = 0;
};

/// Adds the calls that are made while it lives to `calls`. One at a time.
class AllReduceCounter {
 public:
  explicit AllReduceCounter(AllReduceCalls& calls);
  AllReduceCounter(const AllReduceCounter&) = delete;
  ~AllReduceCounter();
};

}  // namespace lockstep::bench
