// Element-wise kernels: one thread per element, in strides of the grid. Compiled without fused operations, so that
// every element has the same bits as in the host's loops, except GELU's, because host and GPU compute tanh differently.
// Indices have 64 bits, since 32-bit counts would end at 2^31 elements.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/launch.hpp"
#include "models/ops/cuda/sequence_launch.hpp"
#include "models/ops/gelu.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

// For add_bias. A block is a tile of rows and columns, so that no thread divides an index to find its column.
constexpr int tile_columns = 32;
constexpr int tile_rows = 8;

/// `to` may be `from`.
template <class From, class To>
__global__ void add_bias_kernel(const From* from, const detail::computed_t<From>* bias, bool is_relu, To* to,
                                std::int64_t row_count, std::int64_t columns) {
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  const std::int64_t row_stride = static_cast<std::int64_t>(gridDim.y) * blockDim.y;
  for (std::int64_t column = first_index(); column < columns; column += stride()) {
    const auto value = bias[column];
    for (std::int64_t row = first_row; row < row_count; row += row_stride) {
      const auto sum = wide(from[row * columns + column]) + value;
      store(to[row * columns + column], is_relu && sum < 0 ? 0 : sum);
    }
  }
}

// Written as `x < 0 ? 0 : x` and `y <= 0 ? 0 : dy`, these let NaN through.

template <class T>
__global__ void relu_kernel(const T* x, T* y, std::int64_t count) {
  using Number = detail::computed_t<T>;
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const Number value = wide(x[i]);
    store(y[i], value < Number{0} ? Number{0} : value);
  }
}

template <class T>
__global__ void relu_gradient_kernel(const T* y, const T* dy, T* dx, std::int64_t count) {
  using Number = detail::computed_t<T>;
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const Number gradient = wide(dy[i]);
    store(dx[i], wide(y[i]) <= Number{0} ? Number{0} : gradient);
  }
}

template <class T>
__global__ void add_kernel(T* sum, const T* x, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) store(sum[i], wide(sum[i]) + wide(x[i]));
}

template <class T>
__global__ void gelu_kernel(const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) store(y[i], gelu_of(wide(x[i])));
}

template <class T>
__global__ void gelu_gradient_kernel(const T* x, const T* dy, T* dx, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    store(dx[i], wide(dy[i]) * gelu_derivative(wide(x[i])));
}

}  // namespace

template <class T>
cudaError_t launch_add_bias(T* rows, const detail::computed_t<T>* bias, std::int64_t row_count, std::int64_t columns,
                            cudaStream_t stream) {
  const dim3 grid{blocks_for(columns, tile_columns), blocks_for(row_count, tile_rows)};
  return launch(add_bias_kernel<T, T>, grid, dim3{tile_columns, tile_rows}, stream, rows, bias, false, rows, row_count,
                columns);
}

cudaError_t launch_round_layer(const float* sums, const float* bias, bool is_relu, BFloat16* rows,
                               std::int64_t row_count, std::int64_t columns, cudaStream_t stream) {
  const dim3 grid{blocks_for(columns, tile_columns), blocks_for(row_count, tile_rows)};
  return launch(add_bias_kernel<float, BFloat16>, grid, dim3{tile_columns, tile_rows}, stream, sums, bias, is_relu,
                rows, row_count, columns);
}

template <class T>
cudaError_t launch_relu(const T* x, T* y, std::int64_t count, cudaStream_t stream) {
  return launch(relu_kernel<T>, blocks_for(count, threads), threads, stream, x, y, count);
}

template <class T>
cudaError_t launch_relu_gradient(const T* y, const T* dy, T* dx, std::int64_t count, cudaStream_t stream) {
  return launch(relu_gradient_kernel<T>, blocks_for(count, threads), threads, stream, y, dy, dx, count);
}

template <class T>
cudaError_t launch_add(T* sum, const T* x, std::int64_t count, cudaStream_t stream) {
  return launch(add_kernel<T>, blocks_for(count, threads), threads, stream, sum, x, count);
}

template <class T>
cudaError_t launch_gelu(const T* x, T* y, std::int64_t count, cudaStream_t stream) {
  return launch(gelu_kernel<T>, blocks_for(count, threads), threads, stream, x, y, count);
}

template <class T>
cudaError_t launch_gelu_gradient(const T* x, const T* dy, T* dx, std::int64_t count, cudaStream_t stream) {
  return launch(gelu_gradient_kernel<T>, blocks_for(count, threads), threads, stream, x, dy, dx, count);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                        \
  template cudaError_t launch_add_bias<T>(T*, const detail::computed_t<T>*, std::int64_t, std::int64_t, cudaStream_t); \
  template cudaError_t launch_relu<T>(const T*, T*, std::int64_t, cudaStream_t);                                       \
  template cudaError_t launch_relu_gradient<T>(const T*, const T*, T*, std::int64_t, cudaStream_t);                    \
  template cudaError_t launch_add<T>(T*, const T*, std::int64_t, cudaStream_t);                                        \
  template cudaError_t launch_gelu<T>(const T*, T*, std::int64_t, cudaStream_t);                                       \
  template cudaError_t launch_gelu_gradient<T>(const T*, const T*, T*, std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
