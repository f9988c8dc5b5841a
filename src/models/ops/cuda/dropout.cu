// Dropout and moving averages, element by element, with the host's bits.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/image_launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

constexpr std::int64_t words_of_block = 4;

/// A thread takes a block of random words. Only a part of the first and of the last block may be needed.
template <class T>
__global__ void dropout_mask_kernel(PhiloxWords random, std::uint64_t first, std::uint64_t dropped_below, T kept,
                                    T* mask, std::int64_t count, std::int64_t blocks) {
  const std::uint64_t first_block = first / words_of_block;
  const auto skipped = static_cast<std::int64_t>(first % words_of_block);
  for (std::int64_t block = first_index(); block < blocks; block += stride()) {
    std::uint32_t words[words_of_block];
    random.block(first_block + static_cast<std::uint64_t>(block), words);
    for (std::int64_t word = 0; word < words_of_block; ++word) {
      const std::int64_t i = block * words_of_block + word - skipped;
      if (i >= 0 && i < count) mask[i] = words[word] < dropped_below ? T{0} : kept;
    }
  }
}

template <class T>
__global__ void multiply_kernel(const T* x, const detail::computed_t<T>* factors, T* y, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) store(y[i], wide(x[i]) * factors[i]);
}

template <class T>
__global__ void moving_average_kernel(T* average, const T* sum, T divisor, T momentum, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride())
    average[i] = momentum * average[i] + (T{1} - momentum) * (sum[i] / divisor);
}

}  // namespace

template <class T>
cudaError_t launch_dropout_mask(const PhiloxWords& random, std::uint64_t first, std::uint64_t dropped_below, T kept,
                                T* mask, std::int64_t count, cudaStream_t stream) {
  const auto skipped = static_cast<std::int64_t>(first % words_of_block);
  const std::int64_t blocks = (skipped + count + words_of_block - 1) / words_of_block;
  return launch(dropout_mask_kernel<T>, blocks_for(blocks, threads), threads, stream, random, first, dropped_below,
                kept, mask, count, blocks);
}

template <class T>
cudaError_t launch_multiply(const T* x, const detail::computed_t<T>* factors, T* y, std::int64_t count,
                            cudaStream_t stream) {
  return launch(multiply_kernel<T>, blocks_for(count, threads), threads, stream, x, factors, y, count);
}

template <class T>
cudaError_t launch_moving_average(T* average, const T* sum, T divisor, T momentum, std::int64_t count,
                                  cudaStream_t stream) {
  return launch(moving_average_kernel<T>, blocks_for(count, threads), threads, stream, average, sum, divisor, momentum,
                count);
}

template cudaError_t launch_multiply<float>(const float*, const float*, float*, std::int64_t, cudaStream_t);
template cudaError_t launch_multiply<double>(const double*, const double*, double*, std::int64_t, cudaStream_t);
template cudaError_t launch_multiply<BFloat16>(const BFloat16*, const float*, BFloat16*, std::int64_t, cudaStream_t);

#define LOCKSTEP_INSTANTIATE(T)                                                                                      \
  template cudaError_t launch_dropout_mask<T>(const PhiloxWords&, std::uint64_t, std::uint64_t, T, T*, std::int64_t, \
                                              cudaStream_t);                                                         \
  template cudaError_t launch_moving_average<T>(T*, const T*, T, T, std::int64_t, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
