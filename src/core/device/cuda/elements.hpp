// How kernels with one thread per element traverse memory: in strides of the grid. For .cu files alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::detail::cuda {

constexpr int threads = 256;  ///< per block

inline __device__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
inline __device__ std::int64_t stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace lockstep::detail::cuda
