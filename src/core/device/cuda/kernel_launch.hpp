// The launch of a kernel, with what CUDA says of this launch. For .cu files alone.
#pragma once

#include <utility>

#include <cuda_runtime.h>

namespace lockstep::detail {

/// Enqueues `kernel` on `stream`. After `<<<>>>` one would have to ask for the thread's last error, and get one that an
/// earlier call has left there.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                   Arguments&&... arguments) {
  cudaLaunchConfig_t shape{};
  shape.gridDim = blocks;
  shape.blockDim = threads;
  shape.stream = stream;
  return cudaLaunchKernelEx(&shape, kernel, std::forward<Arguments>(arguments)...);
}

}  // namespace lockstep::detail
