// Optimizer steps, one thread per element in strides of the grid, and the sum of squares. Compiled without fused
// operations, like elementwise.cu, so the bits are the host's.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "sync/update/cuda/launch.hpp"
#include "sync/update/square_blocks.hpp"

namespace lockstep::detail::cuda {
namespace {

template <class T>
__global__ void sgd_kernel(T* values, const T* gradient, StepScalars<T> step, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) apply_sgd(values[i], gradient[i], step);
}

template <class T>
__global__ void momentum_kernel(T* values, const T* gradient, T* velocity, StepScalars<T> step, T momentum,
                                std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    apply_momentum(values[i], gradient[i], velocity[i], step, momentum);
}

template <class T>
__global__ void adamw_kernel(T* values, const T* gradient, T* first, T* second, StepScalars<T> step,
                             AdamWScalars<T> adam, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    apply_adamw(values[i], gradient[i], first[i], second[i], step, adam);
}

/// A block has as many threads as a block of elements has sums, and takes one block of elements after another.
template <class T>
__global__ void block_sums_kernel(const T* x, std::int64_t count, double* block_sums) {
  __shared__ double sums[square_lanes];
  const int lane = static_cast<int>(threadIdx.x);
  for (std::int64_t block = blockIdx.x; block < square_blocks(count); block += gridDim.x) {
    const std::int64_t first = block * square_block;
    const std::int64_t last = first + square_block < count ? first + square_block : count;
    double sum = 0;
    for (std::int64_t i = first + lane; i < last; i += square_lanes)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums[lane] = sum;
    __syncthreads();
    for (int width = square_lanes / 2; width > 0; width /= 2) {
      if (lane < width) sums[lane] += sums[lane + width];
      __syncthreads();
    }
    if (lane == 0) block_sums[block] = sums[0];
    // The next block's sums overwrite these.
    __syncthreads();
  }
}

constexpr int tree_threads = 1024;

/// One block. Leaves the sum of all in the place of the first.
__global__ void tree_kernel(double* sums, std::int64_t count) {
  for (std::int64_t distance = 1; distance < count; distance *= 2) {
    for (std::int64_t i = threadIdx.x * 2 * distance; i + distance < count; i += tree_threads * 2 * distance)
      sums[i] += sums[i + distance];
    __syncthreads();
  }
}

}  // namespace

template <class T>
cudaError_t launch_sgd(T* values, const T* gradient, const StepScalars<T>& step, std::int64_t count,
                       cudaStream_t stream) {
  return launch(sgd_kernel<T>, blocks_for(count, threads), threads, stream, values, gradient, step, count);
}

template <class T>
cudaError_t launch_momentum(T* values, const T* gradient, T* velocity, const StepScalars<T>& step, T momentum,
                            std::int64_t count, cudaStream_t stream) {
  return launch(momentum_kernel<T>, blocks_for(count, threads), threads, stream, values, gradient, velocity, step,
                momentum, count);
}

template <class T>
cudaError_t launch_adamw(T* values, const T* gradient, T* first, T* second, const StepScalars<T>& step,
                         const AdamWScalars<T>& adam, std::int64_t count, cudaStream_t stream) {
  return launch(adamw_kernel<T>, blocks_for(count, threads), threads, stream, values, gradient, first, second, step,
                adam, count);
}

template <class T>
cudaError_t launch_block_sums(const T* x, std::int64_t count, double* block_sums, cudaStream_t stream) {
  return launch(block_sums_kernel<T>, blocks_for(square_blocks(count), 1), square_lanes, stream, x, count, block_sums);
}

cudaError_t launch_sum_of_sums(double* sums, std::int64_t count, cudaStream_t stream) {
  return launch(tree_kernel, 1, tree_threads, stream, sums, count);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                    \
  template cudaError_t launch_sgd<T>(T*, const T*, const StepScalars<T>&, std::int64_t, cudaStream_t);             \
  template cudaError_t launch_momentum<T>(T*, const T*, T*, const StepScalars<T>&, T, std::int64_t, cudaStream_t); \
  template cudaError_t launch_adamw<T>(T*, const T*, T*, T*, const StepScalars<T>&, const AdamWScalars<T>&,        \
                                       std::int64_t, cudaStream_t);                                                \
  template cudaError_t launch_block_sums<T>(const T*, std::int64_t, double*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::detail::cuda
