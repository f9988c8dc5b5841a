// Layer norm: a warp per row, and for the sums over the rows a thread per column, which adds up the first row first.
// X is the type of x and dx, Y that of y and dy.
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

template <class X, class Y>
__global__ void layer_norm_kernel(NormRows<X> of, const detail::computed_t<X>* bias, detail::computed_t<X> epsilon,
                                  Y* y, detail::computed_t<X>* moments) {
  using T = detail::computed_t<X>;
  const T count = static_cast<T>(of.width);
  for (std::int64_t row = first_row_of_warp(); row < of.rows; row += rows_apart()) {
    const X* const x = of.x + row * of.width;
    const T mean = strided_sum<T>(of.width, [=](std::int64_t j) { return wide(x[j]); }) / count;
    const auto distance = [=](std::int64_t j) { return wide(x[j]) - mean; };
    const T variance = strided_sum<T>(of.width, [=](std::int64_t j) { return distance(j) * distance(j); }) / count;
    const T inverse = T{1} / std::sqrt(variance + epsilon);
    for (std::int64_t j = threadIdx.x; j < of.width; j += lanes)
      store(y[row * of.width + j], distance(j) * inverse * of.gain[j] + bias[j]);
    if (threadIdx.x != 0) continue;
    moments[2 * row] = mean;
    moments[2 * row + 1] = inverse;
  }
}

/// With n = (x - mean) * inverse and g = dy * gain: dx = inverse * (g - mean(g) - n * mean(g * n)). A lane reads and
/// writes its own columns alone, so dx may be dy.
template <class X, class Y>
__global__ void layer_norm_gradient_kernel(NormRows<X> of, const detail::computed_t<X>* moments, const Y* dy, X* dx) {
  using T = detail::computed_t<X>;
  const T count = static_cast<T>(of.width);
  for (std::int64_t row = first_row_of_warp(); row < of.rows; row += rows_apart()) {
    const X* const x = of.x + row * of.width;
    const Y* const d = dy + row * of.width;
    const T mean = moments[2 * row];
    const T inverse = moments[2 * row + 1];
    const auto normal = [=](std::int64_t j) { return (wide(x[j]) - mean) * inverse; };
    const auto g = [=](std::int64_t j) { return wide(d[j]) * of.gain[j]; };
    const T mean_g = strided_sum<T>(of.width, g) / count;
    const T mean_gn = strided_sum<T>(of.width, [=](std::int64_t j) { return g(j) * normal(j); }) / count;
    for (std::int64_t j = threadIdx.x; j < of.width; j += lanes)
      store(dx[row * of.width + j], inverse * (g(j) - mean_g - normal(j) * mean_gn));
  }
}

constexpr int column_threads = 32;

template <class X, class Y>
__global__ void layer_norm_sums_kernel(NormRows<X> of, const detail::computed_t<X>* moments, const Y* dy,
                                       detail::computed_t<X>* d_gain, detail::computed_t<X>* d_bias) {
  using T = detail::computed_t<X>;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * column_threads + threadIdx.x;
  const std::int64_t apart = static_cast<std::int64_t>(gridDim.x) * column_threads;
  for (std::int64_t column = first; column < of.width; column += apart) {
    T gain_sum = 0;
    T bias_sum = 0;
    for (std::int64_t row = 0; row < of.rows; ++row) {
      const T d = wide(dy[row * of.width + column]);
      gain_sum += d * ((wide(of.x[row * of.width + column]) - moments[2 * row]) * moments[2 * row + 1]);
      bias_sum += d;
    }
    d_gain[column] = gain_sum;
    d_bias[column] = bias_sum;
  }
}

}  // namespace

template <class X, class Y>
cudaError_t launch_layer_norm(const NormRows<X>& of, const detail::computed_t<X>* bias, detail::computed_t<X> epsilon,
                              Y* y, detail::computed_t<X>* moments, cudaStream_t stream) {
  return launch(layer_norm_kernel<X, Y>, blocks_for(of.rows, warps), dim3{lanes, warps}, stream, of, bias, epsilon, y,
                moments);
}

template <class X, class Y>
cudaError_t launch_layer_norm_gradient(const NormRows<X>& of, const detail::computed_t<X>* moments, const Y* dy, X* dx,
                                       cudaStream_t stream) {
  return launch(layer_norm_gradient_kernel<X, Y>, blocks_for(of.rows, warps), dim3{lanes, warps}, stream, of, moments,
                dy, dx);
}

template <class X, class Y>
cudaError_t launch_layer_norm_sums(const NormRows<X>& of, const detail::computed_t<X>* moments, const Y* dy,
                                   detail::computed_t<X>* d_gain, detail::computed_t<X>* d_bias, cudaStream_t stream) {
  return launch(layer_norm_sums_kernel<X, Y>, blocks_for(of.width, column_threads), column_threads, stream, of, moments,
                dy, d_gain, d_bias);
}

#define LOCKSTEP_INSTANTIATE(X, Y)                                                                                  \
  template cudaError_t launch_layer_norm<X, Y>(const NormRows<X>&, const detail::computed_t<X>*,                    \
                                               detail::computed_t<X>, Y*, detail::computed_t<X>*, cudaStream_t);    \
  template cudaError_t launch_layer_norm_gradient<X, Y>(const NormRows<X>&, const detail::computed_t<X>*, const Y*, \
                                                        X*, cudaStream_t);                                          \
  template cudaError_t launch_layer_norm_sums<X, Y>(const NormRows<X>&, const detail::computed_t<X>*, const Y*,     \
                                                    detail::computed_t<X>*, detail::computed_t<X>*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float, float)
LOCKSTEP_INSTANTIATE(double, double)
LOCKSTEP_INSTANTIATE(BFloat16, BFloat16)
LOCKSTEP_INSTANTIATE(float, BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
