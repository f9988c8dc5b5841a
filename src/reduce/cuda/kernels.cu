// One thread an element, in strides of the grid. Compiled without fused operations, as everything else: the sums have
// the bits that the host's have.
#include "reduce/cuda/launch.hpp"

namespace lockstep::detail::cuda {
namespace {

constexpr int threads = 256;

int blocks_for(std::int64_t count) {
  constexpr std::int64_t most = 4096;  // enough to fill any GPU; the stride does the rest
  const std::int64_t blocks = (count + threads - 1) / threads;
  return static_cast<int>(blocks < most ? blocks : most);
}

__device__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// The parts come in order, and equal runs join as a binary counter carries; what is left joins from the right. That is
/// the tree of fixed_order_sum. 32 levels are more parts than there can be.
template <class T>
__device__ T tree(const T* pieces, std::int64_t piece_stride, int parts, std::int64_t i) {
  T run[32];
  int top = 0;
  for (int part = 0; part < parts; ++part) {
    T value = pieces[part * piece_stride + i];
    for (int carry = part; carry & 1; carry >>= 1) value = static_cast<T>(run[--top] + value);
    run[top++] = value;
  }
  T sum = run[--top];
  while (top > 0) sum = static_cast<T>(run[--top] + sum);
  return sum;
}

template <class T>
__global__ void tree_sum_kernel(const T* pieces, std::int64_t piece_stride, int parts, T* sum, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) sum[i] = tree(pieces, piece_stride, parts, i);
}

template <class T>
__global__ void add_kernel(T* sum, const T* x, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) sum[i] = static_cast<T>(sum[i] + x[i]);
}

template <class T>
__global__ void divide_kernel(T* values, T divisor, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) values[i] = static_cast<T>(values[i] / divisor);
}

}  // namespace

template <class T>
cudaError_t launch_tree_sum(const T* pieces, std::int64_t piece_stride, int parts, T* sum, std::int64_t count,
                            cudaStream_t stream) {
  tree_sum_kernel<<<blocks_for(count), threads, 0, stream>>>(pieces, piece_stride, parts, sum, count);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_add(T* sum, const T* x, std::int64_t count, cudaStream_t stream) {
  add_kernel<<<blocks_for(count), threads, 0, stream>>>(sum, x, count);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch_divide(T* values, int divisor, std::int64_t count, cudaStream_t stream) {
  divide_kernel<<<blocks_for(count), threads, 0, stream>>>(values, static_cast<T>(divisor), count);
  return cudaGetLastError();
}

#define LOCKSTEP_INSTANTIATE(T)                                                                         \
  template cudaError_t launch_tree_sum<T>(const T*, std::int64_t, int, T*, std::int64_t, cudaStream_t); \
  template cudaError_t launch_add<T>(T*, const T*, std::int64_t, cudaStream_t);                         \
  template cudaError_t launch_divide<T>(T*, int, std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(std::int32_t)
LOCKSTEP_INSTANTIATE(std::int64_t)
LOCKSTEP_INSTANTIATE(std::uint8_t)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::detail::cuda
