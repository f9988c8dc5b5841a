// Asks CUDA why it finds no GPU.
#include <cstdlib>

#include <cuda_runtime_api.h>

#include "core/device/cuda/backend.hpp"
#include "core/device/device_call.hpp"
#include "core/device/gpu_absence.hpp"

namespace lockstep {

std::string detail::cuda::why_no_device() {
  const DeviceCall call;
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return {};
  GpuAnswer answer{.code = result == cudaSuccess ? cudaErrorNoDevice : result,
                   .text = cudaGetErrorString(result),
                   .build_cuda = CUDART_VERSION,
                   .visible = std::getenv("CUDA_VISIBLE_DEVICES")};
  (void)cudaDriverGetVersion(&answer.driver_cuda);
  (void)cudaGetLastError();
  return why_no_gpu(answer);
}

}  // namespace lockstep
