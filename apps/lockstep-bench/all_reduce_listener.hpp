// Hears of the all-reduces that the library makes of MPI, by MPI's profiling interface: this program has an
// MPI_Allreduce of its own, which the library's calls find first, and which passes them on to PMPI_Allreduce.
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// While it lives it is told of each call of MPI_Allreduce on this rank, on any communicator. One at a time.
class AllReduceListener {
 public:
  AllReduceListener();
  AllReduceListener(const AllReduceListener&) = delete;
  virtual ~AllReduceListener();

  virtual void on_begin(std::int64_t bytes) = 0;
  virtual void on_end() {}
};

}  // namespace lockstep::bench
