// Layer norm: a warp per row, and for the sums over the rows a thread per column, which adds up the first row first.
#include <cmath>

#include "device/cuda/kernel_launch.hpp"
#include "ops/cuda/geometry.hpp"
#include "ops/cuda/sequence_launch.hpp"
#include "ops/cuda/warp.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;

template <class T>
__global__ void layer_norm_kernel(NormRows<T> of, const T* bias, T epsilon, T* y, T* moments) {
  const T count = static_cast<T>(of.width);
  for (std::int64_t row = first_row_of_warp(); row < of.rows; row += rows_apart()) {
    const T* const x = of.x + row * of.width;
    const T mean = strided_sum<T>(of.width, [=](std::int64_t j) { return x[j]; }) / count;
    const T variance = strided_sum<T>(of.width, [=](std::int64_t j) { return (x[j] - mean) * (x[j] - mean); }) / count;
    const T inverse = T{1} / std::sqrt(variance + epsilon);
    for (std::int64_t j = threadIdx.x; j < of.width; j += lanes)
      y[row * of.width + j] = (x[j] - mean) * inverse * of.gain[j] + bias[j];
    if (threadIdx.x != 0) continue;
    moments[2 * row] = mean;
    moments[2 * row + 1] = inverse;
  }
}

/// With n = (x - mean) * inverse and g = dy * gain: dx = inverse * (g - mean(g) - n * mean(g * n)). A lane reads and
/// writes its own columns alone, so dx may be dy.
template <class T>
__global__ void layer_norm_gradient_kernel(NormRows<T> of, const T* moments, const T* dy, T* dx) {
  const T count = static_cast<T>(of.width);
  for (std::int64_t row = first_row_of_warp(); row < of.rows; row += rows_apart()) {
    const T* const x = of.x + row * of.width;
    const T* const d = dy + row * of.width;
    const T mean = moments[2 * row];
    const T inverse = moments[2 * row + 1];
    const auto normal = [=](std::int64_t j) { return (x[j] - mean) * inverse; };
    const auto g = [=](std::int64_t j) { return d[j] * of.gain[j]; };
    const T mean_g = strided_sum<T>(of.width, g) / count;
    const T mean_gn = strided_sum<T>(of.width, [=](std::int64_t j) { return g(j) * normal(j); }) / count;
    for (std::int64_t j = threadIdx.x; j < of.width; j += lanes)
      dx[row * of.width + j] = inverse * (g(j) - mean_g - normal(j) * mean_gn);
  }
}

constexpr int column_threads = 32;

template <class T>
__global__ void layer_norm_sums_kernel(NormRows<T> of, const T* moments, const T* dy, T* d_gain, T* d_bias) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
  const std::int64_t apart = static_cast<std::int64_t>(gridDim.x) * column_threads;
  for (std::int64_t column = first; column < of.width; column += apart) {
    T gain_sum = 0;
    T bias_sum = 0;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      const T d = dy[row * of.width + column];
      gain_sum += d * ((of.x[row * of.width + column] - moments[2 * row]) * moments[2 * row + 1]);
      bias_sum += d;
    }
    d_gain[column] = gain_sum;
    d_bias[column] = bias_sum;
  }
}

}  // namespace

template <class T>
cudaError_t launch_layer_norm(const NormRows<T>& of, const T* bias, T epsilon, T* y, T* moments, cudaStream_t stream) {
  return launch(layer_norm_kernel<T>, blocks_for(of.rows, warps), dim3{lanes, warps}, stream, of, bias, epsilon, y,
                moments);
}

template <class T>
cudaError_t launch_layer_norm_gradient(const NormRows<T>& of, const T* moments, const T* dy, T* dx,
                                       cudaStream_t stream) {
  return launch(layer_norm_gradient_kernel<T>, blocks_for(of.rows, warps), dim3{lanes, warps}, stream, of, moments, dy,
                dx);
}

template <class T>
cudaError_t launch_layer_norm_sums(const NormRows<T>& of, const T* moments, const T* dy, T* d_gain, T* d_bias,
                                   cudaStream_t stream) {
  return launch(layer_norm_sums_kernel<T>, blocks_for(of.width, column_threads), column_threads, stream, of, moments,
                dy, d_gain, d_bias);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                 \
  template cudaError_t launch_layer_norm<T>(const NormRows<T>&, const T*, T, T*, T*, cudaStream_t);             \
  template cudaError_t launch_layer_norm_gradient<T>(const NormRows<T>&, const T*, const T*, T*, cudaStream_t); \
  template cudaError_t launch_layer_norm_sums<T>(const NormRows<T>&, const T*, const T*, T*, T*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
