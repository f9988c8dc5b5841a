// One thread per element, in strides of the grid.
#include "core/device/cuda/elements.hpp"
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/launch.hpp"
#include "core/tensor/cuda/stored.hpp"

namespace lockstep::detail::cuda {
namespace {

template <class From, class To>
__global__ void convert_kernel(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = first_index(); i < count; i += stride()) store(to[i], wide(from[i]));
}

}  // namespace

template <class From, class To>
cudaError_t launch_convert(const From* from, To* to, std::int64_t count, cudaStream_t stream) {
  return launch(convert_kernel<From, To>, blocks_for(count, threads), threads, stream, from, to, count);
}

template cudaError_t launch_convert<float, BFloat16>(const float*, BFloat16*, std::int64_t, cudaStream_t);
template cudaError_t launch_convert<BFloat16, float>(const BFloat16*, float*, std::int64_t, cudaStream_t);

}  // namespace lockstep::detail::cuda
