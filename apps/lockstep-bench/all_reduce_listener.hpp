// Listens to the library's all-reduces through MPI's profiling interface. This program has its own MPI_Allreduce, which
// the library's calls find first, and which passes them on to PMPI_Allreduce.
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Is told of each call of MPI_Allreduce on this rank, on any communicator. At most one may live at a time.
class AllReduceListener {
 public:
  AllReduceListener();
  AllReduceListener(const AllReduceListener&) = delete;
  virtual ~AllReduceListener();

  virtual void on_begin(std::int64_t bytes) = 0;
  virtual void on_end() {}
};

}  // namespace lockstep::bench
