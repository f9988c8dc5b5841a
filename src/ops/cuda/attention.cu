// The rows of causal attention, a warp for each. A lane reads and writes its own elements alone.
#include <cmath>

#include "device/cuda/kernel_launch.hpp"
#include "ops/cuda/geometry.hpp"
#include "ops/cuda/sequence_launch.hpp"
#include "ops/cuda/warp.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;

/// NaN is not the largest, and makes the sum after it NaN.
template <class T>
__device__ T warp_largest(T value) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(all_lanes, value, distance);
    if (other > value) value = other;
  }
  return value;
}

template <class T>
__global__ void causal_softmax_kernel(T* scores, std::int64_t rows, std::int64_t context) {
  for (std::int64_t row = first_row_of_warp(); row < rows; row += rows_apart()) {
    const std::int64_t known = row % context + 1;
    T* const x = scores + row * context;
    T largest = static_cast<T>(-INFINITY);
    for (std::int64_t j = threadIdx.x; j < known; j += lanes)
      if (x[j] > largest) largest = x[j];
    largest = warp_largest(largest);
    const T sum = strided_sum<T>(known, [=](std::int64_t j) { return x[j] = std::exp(x[j] - largest); });
    for (std::int64_t j = threadIdx.x; j < context; j += lanes) x[j] = j < known ? x[j] / sum : T{0};
  }
}

template <class T>
__global__ void causal_softmax_gradient_kernel(const T* probabilities, T* d, std::int64_t rows, std::int64_t context) {
  for (std::int64_t row = first_row_of_warp(); row < rows; row += rows_apart()) {
    const std::int64_t known = row % context + 1;
    const T* const p = probabilities + row * context;
    T* const own = d + row * context;
    const T mean = strided_sum<T>(known, [=](std::int64_t j) { return p[j] * own[j]; });
    for (std::int64_t j = threadIdx.x; j < context; j += lanes) own[j] = j < known ? p[j] * (own[j] - mean) : T{0};
  }
}

}  // namespace

template <class T>
cudaError_t launch_causal_softmax(T* scores, std::int64_t matrices, std::int64_t context, cudaStream_t stream) {
  const std::int64_t rows = matrices * context;
  return launch(causal_softmax_kernel<T>, blocks_for(rows, warps), dim3{lanes, warps}, stream, scores, rows, context);
}

template <class T>
cudaError_t launch_causal_softmax_gradient(const T* probabilities, T* d, std::int64_t matrices, std::int64_t context,
                                           cudaStream_t stream) {
  const std::int64_t rows = matrices * context;
  return launch(causal_softmax_gradient_kernel<T>, blocks_for(rows, warps), dim3{lanes, warps}, stream, probabilities,
                d, rows, context);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                \
  template cudaError_t launch_causal_softmax<T>(T*, std::int64_t, std::int64_t, cudaStream_t); \
  template cudaError_t launch_causal_softmax_gradient<T>(const T*, T*, std::int64_t, std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
