// How many threads oneDNN runs on.
#pragma once

#include <omp.h>

#include <lockstep/models/ops/kernels.hpp>

#include "core/base/floating_point_modes.hpp"

namespace lockstep::ops {

/// Sets OpenMP's number of threads for its lifetime. OpenMP keeps that number per calling thread. Setting it once where
/// the kernels are made would not reach the threads that call them, and OMP_NUM_THREADS would win. With OMP_DYNAMIC,
/// OpenMP would take fewer threads on a busy machine, and sums would have other bits.
class OpenMpThreads {
 public:
  explicit OpenMpThreads(Kernels::Threads threads) : before_{omp_get_max_threads()}, was_dynamic_{omp_get_dynamic()} {
    omp_set_dynamic(0);
    omp_set_num_threads(threads.count);
  }
  OpenMpThreads(const OpenMpThreads&) = delete;
  OpenMpThreads& operator=(const OpenMpThreads&) = delete;
  ~OpenMpThreads() {
    omp_set_num_threads(before_);
    omp_set_dynamic(was_dynamic_);
  }

 private:
  int before_;
  int was_dynamic_;
};

/// Resets the floating-point modes of the threads that OpenMP keeps for the calling thread. Another library may have
/// made them before the modes of this one were reset.
inline void reset_modes_of_threads(Kernels::Threads threads) {
#pragma omp parallel num_threads(threads.count)
  reset_floating_point_modes();
}

}  // namespace lockstep::ops
