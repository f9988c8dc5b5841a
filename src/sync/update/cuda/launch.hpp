// Launches of kernels for cuda_update_kernels.cpp. They take plain pointers, so that nvcc compiles nothing but kernels.
// T is float or double; counts are positive. Each enqueues its work on `stream` and returns CUDA's status for that.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "sync/update/update_rules.hpp"

namespace lockstep::detail::cuda {

template <class T>
cudaError_t launch_sgd(T* values, const T* gradient, const StepScalars<T>& step, std::int64_t count,
                       cudaStream_t stream);

template <class T>
cudaError_t launch_momentum(T* values, const T* gradient, T* velocity, const StepScalars<T>& step, T momentum,
                            std::int64_t count, cudaStream_t stream);

template <class T>
cudaError_t launch_adamw(T* values, const T* gradient, T* first, T* second, const StepScalars<T>& step,
                         const AdamWScalars<T>& adam, std::int64_t count, cudaStream_t stream);

/// The sum of the squares of each block of x; there are square_blocks(count) blocks.
template <class T>
cudaError_t launch_block_sums(const T* x, std::int64_t count, double* block_sums, cudaStream_t stream);

/// sums[0] = the sum of all, in the tree of fixed_order_sum. The others are left unspecified.
cudaError_t launch_sum_of_sums(double* sums, std::int64_t count, cudaStream_t stream);

}  // namespace lockstep::detail::cuda
