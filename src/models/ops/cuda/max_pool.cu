// Max-pooling of 2 x 2 positions, one thread per window and channel, in strides of the grid.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

constexpr int positions = 4;  ///< of a window

/// A channel of a window: where its elements are in the image, in memory order.
struct Window {
  std::int64_t at[positions];
  bool is_inside[positions];  ///< the last row or column of an odd extent has a part of a window

  /// Number `i` of the windows of `of`, `rows` by `columns` in each image.
  __device__ Window(const Images& of, std::int64_t rows, std::int64_t columns, std::int64_t i) {
    const std::int64_t channel = i % of.channels, window = i / of.channels;
    const std::int64_t column = window % columns * 2, row = window / columns % rows * 2;
    const std::int64_t image = window / columns / rows;
    for (int k = 0; k < positions; ++k) {
      const std::int64_t y = row + k / 2, x = column + k % 2;
      is_inside[k] = y < of.height && x < of.width;
      at[k] = ((image * of.height + y) * of.width + x) * of.channels + channel;
    }
  }
};

/// The largest, or a NaN if there is one.
template <class Number>
__device__ Number largest(const Number (&values)[positions]) {
  Number best = values[0];
  for (int k = 1; k < positions; ++k) best = best < values[k] ? values[k] : best;
  for (int k = 1; k < positions; ++k) best = values[k] != values[k] ? values[k] : best;
  return best;
}

template <class T>
__global__ void max_pool_kernel(Images of, const T* x, T* y, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const Window window{of, of.height / 2, of.width / 2, i};
    detail::computed_t<T> values[positions];
    for (int k = 0; k < positions; ++k) values[k] = wide(x[window.at[k]]);
    store(y[i], largest(values));
  }
}

/// A thread reads its window before it writes to it, so dx may be x.
template <class T>
__global__ void max_pool_gradient_kernel(Images of, const T* x, const T* dy, T* dx, std::int64_t count) {
  using Number = detail::computed_t<T>;
  const std::int64_t rows = (of.height + 1) / 2, columns = (of.width + 1) / 2;
  const std::int64_t whole_rows = of.height / 2, whole_columns = of.width / 2;
  for (std::int64_t i = first_index(); i < count; i += stride()) {
    const Window window{of, rows, columns, i};
    if (!window.is_inside[positions - 1]) {
      for (int k = 0; k < positions; ++k)
        if (window.is_inside[k]) store(dx[window.at[k]], Number{0});
      continue;
    }
    Number values[positions];
    for (int k = 0; k < positions; ++k) values[k] = wide(x[window.at[k]]);
    const Number best = largest(values);
    const std::int64_t at = i / of.channels, column = at % columns, row = at / columns % rows;
    const std::int64_t image = at / columns / rows;
    // Goes to the first position that is not below the largest; nothing is below a NaN.
    Number left = wide(dy[((image * whole_rows + row) * whole_columns + column) * of.channels + i % of.channels]);
    for (int k = 0; k < positions; ++k) {
      const bool is_below = values[k] < best;
      store(dx[window.at[k]], is_below ? Number{0} : left);
      if (!is_below) left = 0;
    }
  }
}

}  // namespace

template <class T>
cudaError_t launch_max_pool(const Images& of, const T* x, T* y, cudaStream_t stream) {
  const std::int64_t count = of.images * (of.height / 2) * (of.width / 2) * of.channels;
  return launch(max_pool_kernel<T>, blocks_for(count, threads), threads, stream, of, x, y, count);
}

template <class T>
cudaError_t launch_max_pool_gradient(const Images& of, const T* x, const T* dy, T* dx, cudaStream_t stream) {
  const std::int64_t count = of.images * ((of.height + 1) / 2) * ((of.width + 1) / 2) * of.channels;
  return launch(max_pool_gradient_kernel<T>, blocks_for(count, threads), threads, stream, of, x, dy, dx, count);
}

#define LOCKSTEP_INSTANTIATE(T)                                                       \
  template cudaError_t launch_max_pool<T>(const Images&, const T*, T*, cudaStream_t); \
  template cudaError_t launch_max_pool_gradient<T>(const Images&, const T*, const T*, T*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
