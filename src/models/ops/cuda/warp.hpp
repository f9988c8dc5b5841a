// What the lanes of a warp do together. For .cu files alone.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::ops::cuda {

constexpr int lanes = 32;  ///< of a warp
constexpr unsigned all_lanes = 0xffffffff;

/// A butterfly: every lane ends with the same value, from the same additions.
template <class T>
__device__ T warp_sum(T value) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(all_lanes, value, distance);
  return value;
}

/// term(lane) + term(lane + 32) + … of each lane, then warp_sum. All lanes of the warp call it.
template <class T, class Term>
__device__ T strided_sum(std::int64_t count, Term term) {
  T sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += lanes) sum += term(i);
  return warp_sum(sum);
}

constexpr int warps = 8;  ///< of a block whose warps take a row each: blocks are dim3{lanes, warps}

/// The first row of this warp, and how many rows lie between it and its next.
inline __device__ std::int64_t first_row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
}
inline __device__ std::int64_t rows_apart() {
  return static_cast<std::int64_t>(gridDim.x) * warps;
}

}  // namespace lockstep::ops::cuda
