// The rows of causal attention, a warp for each. A lane reads and writes its own elements alone.
#include <cmath>

#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/sequence_launch.hpp"
#include "models/ops/cuda/warp.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

/// NaN is not the largest, and makes the sum after it NaN.
template <class T>
__device__ T warp_largest(T value) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(all_lanes, value, distance);
    if (other > value) value = other;
  }
  return value;
}

/// `probabilities` may be `scores`.
template <class T>
__global__ void causal_softmax_kernel(detail::computed_t<T>* scores, T* probabilities,
                                      detail::computed_t<T>* log_sum_exps, std::int64_t rows, std::int64_t context) {
  using Number = detail::computed_t<T>;
  for (std::int64_t row = first_row_of_warp(); row < rows; row += rows_apart()) {
    const std::int64_t known = row % context + 1;
    Number* const x = scores + row * context;
    T* const p = probabilities + row * context;
    Number largest = static_cast<Number>(-INFINITY);
    for (std::int64_t j = threadIdx.x; j < known; j += lanes)
      if (x[j] > largest) largest = x[j];
    largest = warp_largest(largest);
    const Number sum = strided_sum<Number>(known, [=](std::int64_t j) { return x[j] = std::exp(x[j] - largest); });
    if (threadIdx.x == 0) log_sum_exps[row] = largest + std::log(sum);
    for (std::int64_t j = threadIdx.x; j < context; j += lanes) store(p[j], j < known ? x[j] / sum : Number{0});
  }
}

template <class T>
__global__ void causal_probabilities_kernel(const detail::computed_t<T>* scores,
                                            const detail::computed_t<T>* log_sum_exps, T* probabilities,
                                            std::int64_t rows, std::int64_t context) {
  using Number = detail::computed_t<T>;
  for (std::int64_t row = first_row_of_warp(); row < rows; row += rows_apart()) {
    const std::int64_t known = row % context + 1;
    const Number* const x = scores + row * context;
    T* const p = probabilities + row * context;
    const Number log_sum_exp = log_sum_exps[row];
    for (std::int64_t j = threadIdx.x; j < context; j += lanes)
      store(p[j], j < known ? std::exp(x[j] - log_sum_exp) : Number{0});
  }
}

/// `d_scores` may be `probabilities`.
template <class T>
__global__ void causal_softmax_gradient_kernel(const T* probabilities, const detail::computed_t<T>* d, T* d_scores,
                                               std::int64_t rows, std::int64_t context) {
  using Number = detail::computed_t<T>;
  for (std::int64_t row = first_row_of_warp(); row < rows; row += rows_apart()) {
    const std::int64_t known = row % context + 1;
    const T* const p = probabilities + row * context;
    const Number* const own = d + row * context;
    T* const to = d_scores + row * context;
    const Number mean = strided_sum<Number>(known, [=](std::int64_t j) { return wide(p[j]) * own[j]; });
    for (std::int64_t j = threadIdx.x; j < context; j += lanes)
      store(to[j], j < known ? wide(p[j]) * (own[j] - mean) : Number{0});
  }
}

}  // namespace

template <class T>
cudaError_t launch_causal_softmax(detail::computed_t<T>* scores, T* probabilities, detail::computed_t<T>* log_sum_exps,
                                  std::int64_t matrices, std::int64_t context, cudaStream_t stream) {
  const std::int64_t rows = matrices * context;
  return launch(causal_softmax_kernel<T>, blocks_for(rows, warps), dim3{lanes, warps}, stream, scores, probabilities,
                log_sum_exps, rows, context);
}

template <class T>
cudaError_t launch_causal_probabilities(const detail::computed_t<T>* scores, const detail::computed_t<T>* log_sum_exps,
                                        T* probabilities, std::int64_t matrices, std::int64_t context,
                                        cudaStream_t stream) {
  const std::int64_t rows = matrices * context;
  return launch(causal_probabilities_kernel<T>, blocks_for(rows, warps), dim3{lanes, warps}, stream, scores,
                log_sum_exps, probabilities, rows, context);
}

template <class T>
cudaError_t launch_causal_softmax_gradient(const T* probabilities, const detail::computed_t<T>* d, T* d_scores,
                                           std::int64_t matrices, std::int64_t context, cudaStream_t stream) {
  const std::int64_t rows = matrices * context;
  return launch(causal_softmax_gradient_kernel<T>, blocks_for(rows, warps), dim3{lanes, warps}, stream, probabilities,
                d, d_scores, rows, context);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                       \
  template cudaError_t launch_causal_softmax<T>(detail::computed_t<T>*, T*, detail::computed_t<T>*, std::int64_t,     \
                                                std::int64_t, cudaStream_t);                                          \
  template cudaError_t launch_causal_probabilities<T>(const detail::computed_t<T>*, const detail::computed_t<T>*, T*, \
                                                      std::int64_t, std::int64_t, cudaStream_t);                      \
  template cudaError_t launch_causal_softmax_gradient<T>(const T*, const detail::computed_t<T>*, T*, std::int64_t,    \
                                                         std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
