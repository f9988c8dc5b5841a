// Passes calls about GPUs on to the GPU backend, if this process finds one.
#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "core/device/gpu_backend.hpp"

namespace lockstep {

const detail::GpuBackend& detail::gpu_backend() {
  const GpuLibrary& library = gpu_library();
  if (!library.backend) throw DeviceError{library.why_none};
  return *library.backend;
}

int cuda_device_count() {
  const detail::GpuBackend* const gpus = detail::gpu_library().backend;
  return gpus ? gpus->device_count() : 0;
}

std::vector<std::string> cuda_device_uuids() {
  const detail::GpuBackend* const gpus = detail::gpu_library().backend;
  return gpus ? gpus->device_uuids() : std::vector<std::string>{};
}

std::string detail::why_no_cuda_device() {
  const GpuLibrary& library = gpu_library();
  return library.backend ? library.backend->why_no_device() : library.why_none;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return detail::gpu_backend().make_device(index);
}

std::unique_ptr<DeviceMarks> make_device_marks() {
  const detail::GpuBackend& gpus = detail::gpu_backend();
  return gpus.make_marks ? gpus.make_marks() : nullptr;
}

int detail::cuda_device_index() {
  return gpu_backend().device_index();
}

}  // namespace lockstep
