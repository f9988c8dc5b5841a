// Lookups in a table of rows, and their gradient. A lookup writes nothing if an index is no row: the check leaves its
// verdict in GPU memory, where the lookup reads it.
#include "core/device/cuda/geometry.hpp"
#include "core/device/cuda/kernel_launch.hpp"
#include "core/tensor/cuda/stored.hpp"
#include "models/ops/cuda/first_outside.hpp"
#include "models/ops/cuda/sequence_launch.hpp"
#include "models/ops/cuda/warp.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::launch;
using namespace lockstep::detail::cuda;

/// One block.
__global__ void check_indices_kernel(IndexedRows rows, BadIndex* bad) {
  __shared__ std::int64_t first_bad[check_threads];
  const std::int64_t position = first_outside(rows.indices, rows.count, rows.entries, first_bad);
  if (threadIdx.x == 0) *bad = {.position = position, .index = position < rows.count ? rows.indices[position] : 0};
}

// A block is a tile of rows and columns, so that no thread divides an index to find its column.
constexpr int tile_columns = 32;
constexpr int tile_rows = 8;

template <class T>
__global__ void gather_rows_kernel(IndexedRows which, const BadIndex* bad, const T* table, T* rows) {
  if (bad->position < which.count) return;
  const std::int64_t row_stride = static_cast<std::int64_t>(gridDim.y) * tile_rows;
  const std::int64_t column_stride = static_cast<std::int64_t>(gridDim.x) * tile_columns;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * tile_rows + threadIdx.y; row < which.count;
       row += row_stride) {
    const T* const from = table + which.indices[row] * which.width;
    for (std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * tile_columns + threadIdx.x; column < which.width;
         column += column_stride)
      rows[row * which.width + column] = from[column];
  }
}

constexpr int scatter_threads = 256;
constexpr int scatter_warps = scatter_threads / lanes;

/// A block takes one row of the table after another and looks through all indices for it, as many at a time as it has
/// threads. Its threads add what was found to a column each, so no two write to one element, and the order is that of
/// the indices.
template <class T>
__global__ void scatter_add_rows_kernel(IndexedRows which, const T* rows, detail::computed_t<T>* table) {
  __shared__ unsigned found[scatter_warps];
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t entry = blockIdx.x; entry < which.entries; entry += gridDim.x) {
    detail::computed_t<T>* const sum = table + entry * which.width;
    for (std::int64_t first = 0; first < which.count; first += scatter_threads) {
      const bool is_mine = first + thread < which.count && which.indices[first + thread] == entry;
      const unsigned in_warp = __ballot_sync(all_lanes, is_mine);
      if (thread % lanes == 0) found[thread / lanes] = in_warp;
      __syncthreads();
      for (int warp = 0; warp < scatter_warps; ++warp)
        for (unsigned left = found[warp]; left != 0; left &= left - 1) {
          const T* const row = rows + (first + warp * lanes + __ffs(static_cast<int>(left)) - 1) * which.width;
          for (std::int64_t column = thread; column < which.width; column += scatter_threads)
            sum[column] += wide(row[column]);
        }
      // The next indices' findings overwrite these.
      __syncthreads();
    }
  }
}

}  // namespace

cudaError_t launch_check_indices(const IndexedRows& rows, BadIndex* bad, cudaStream_t stream) {
  return launch(check_indices_kernel, 1, check_threads, stream, rows, bad);
}

template <class T>
cudaError_t launch_gather_rows(const IndexedRows& which, const BadIndex* bad, const T* table, T* rows,
                               cudaStream_t stream) {
  const dim3 grid{blocks_for(which.width, tile_columns), blocks_for(which.count, tile_rows)};
  return launch(gather_rows_kernel<T>, grid, dim3{tile_columns, tile_rows}, stream, which, bad, table, rows);
}

template <class T>
cudaError_t launch_scatter_add_rows(const IndexedRows& which, const T* rows, detail::computed_t<T>* table,
                                    cudaStream_t stream) {
  return launch(scatter_add_rows_kernel<T>, blocks_for(which.entries, 1), scatter_threads, stream, which, rows, table);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                                \
  template cudaError_t launch_gather_rows<T>(const IndexedRows&, const BadIndex*, const T*, T*, cudaStream_t); \
  template cudaError_t launch_scatter_add_rows<T>(const IndexedRows&, const T*, detail::computed_t<T>*, cudaStream_t);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(BFloat16)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::ops::cuda
