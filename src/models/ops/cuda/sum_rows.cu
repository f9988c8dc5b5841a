// Sums of columns. One thread adds up each, first row first, so the bits are the host's. Blocks have one warp, because
// a layer has a few hundred columns and a GPU more than a hundred multiprocessors. The loop is unrolled to keep the
// loads of several rows in flight.
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/launch.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

constexpr int threads = 32;

template <class T>
__global__ void sum_rows_kernel(const T* rows, detail::computed_t<T>* out, std::int64_t row_count,
                                std::int64_t columns) {
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t column = first; column < columns; column += stride) {
    detail::computed_t<T> sum = 0;
#pragma unroll 16
    for (std::int64_t row = 0; row < row_count; ++row) sum += wide(rows[row * columns + column]);
    out[column] = sum;
  }
}

}  // namespace

template <class T>
cudaError_t launch_sum_rows(const T* rows, detail::computed_t<T>* out, std::int64_t row_count, std::int64_t columns,
                            cudaStream_t stream) {
  return launch(sum_rows_kernel<T>, blocks_for(columns, threads), threads, stream, rows, out, row_count, columns);
}

template cudaError_t launch_sum_rows<float>(const float*, float*, std::int64_t, std::int64_t, cudaStream_t);
template cudaError_t launch_sum_rows<double>(const double*, double*, std::int64_t, std::int64_t, cudaStream_t);
template cudaError_t launch_sum_rows<BFloat16>(const BFloat16*, float*, std::int64_t, std::int64_t, cudaStream_t);

}  // namespace lockstep::ops::cuda
