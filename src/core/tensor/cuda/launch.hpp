// The launch of the kernel for convert.cpp. It takes plain pointers, so that nvcc compiles nothing but kernels.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include <lockstep/core/base/dtype.hpp>

namespace lockstep::detail::cuda {

/// From float to BFloat16, or back. `count` is positive. Enqueues its work on `stream` and returns CUDA's status for
/// that.
template <class From, class To>
cudaError_t launch_convert(const From* from, To* to, std::int64_t count, cudaStream_t stream);

}  // namespace lockstep::detail::cuda
