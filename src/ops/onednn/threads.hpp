// How many threads oneDNN runs on.
#pragma once

#include <omp.h>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

/// Sets OpenMP's number of threads for its lifetime. OpenMP keeps that number per calling thread. Setting it once where
/// the kernels are made would not reach the threads that call them, and OMP_NUM_THREADS would win.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(Kernels::Threads threads) : before_{omp_get_max_threads()} {
    omp_set_num_threads(threads.count);
  }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;
  ~OpenMpThreads() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace lockstep::ops
