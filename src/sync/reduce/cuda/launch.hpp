// The kernel launches for sync/reduce/cuda/arithmetic.cpp. They take plain pointers, so that nvcc compiles nothing but
// kernels.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <lockstep/core/base/dtype.hpp>

namespace lockstep::detail::cuda {

/// SumRule::additions in the order of the sum, from the lowest bit of the first word: for each piece, as many ones as
/// additions follow it, and a zero. All zero for the tree of fixed_order_sum.
struct Additions {
  static constexpr int most_pieces = 128;
  std::uint64_t words[4] = {};
};

/// T: float, double, Half, BFloat16, std::int32_t, std::int64_t, std::uint8_t. Each function is one launch, and returns
/// CUDA's error code for it.
template <class T>
cudaError_t launch_tree_sum(const T* pieces, std::int64_t stride, int parts, const Additions& additions, int divisor,
                            T* sum, std::int64_t count, cudaStream_t stream);
template <class T>
cudaError_t launch_add(T* sum, const T* x, std::int64_t count, cudaStream_t stream);
template <class T>
cudaError_t launch_divide(T* values, int divisor, std::int64_t count, cudaStream_t stream);

}  // namespace lockstep::detail::cuda
