// The twin of src/core/device/gpu_library.cpp in programs that link the GPU backend, whose inside they test.
#include "core/device/gpu_backend.hpp"

extern "C" const lockstep::detail::GpuBackend* lockstep_gpu_backend();

namespace lockstep::detail {

const GpuLibrary& gpu_library() {
  static const GpuLibrary linked{.backend = lockstep_gpu_backend()};
  return linked;
}

}  // namespace lockstep::detail
