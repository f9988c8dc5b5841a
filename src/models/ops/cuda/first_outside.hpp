// Finds the first value that is not a valid index, for kernels of one block. For .cu files alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::ops::cuda {

constexpr int check_threads = 1024;  ///< of the block

/// The first position whose value is outside [0, end), or `count`, for thread 0. All threads of the block call it, with
/// check_threads numbers that they share.
inline __device__ std::int64_t first_outside(const std::int32_t* values, std::int64_t count, std::int64_t end,
                                             std::int64_t* first_bad) {
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t mine = count;
  for (std::int64_t i = thread; i < count && mine == count; i += check_threads)
    if (values[i] < 0 || values[i] >= end) mine = i;
  first_bad[thread] = mine;
  __syncthreads();
  for (int width = check_threads / 2; width > 0; width /= 2) {
    if (thread < width && first_bad[thread + width] < first_bad[thread]) first_bad[thread] = first_bad[thread + width];
    __syncthreads();
  }
  return first_bad[0];
}

}  // namespace lockstep::ops::cuda
