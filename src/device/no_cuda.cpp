// Stands in for the GPU backend in a build without one.
#include <lockstep/base/error.hpp>

#include "device/cuda.hpp"
#include "device/device.hpp"
#include "device/devices.hpp"

namespace lockstep {

int cuda_device_count() {
  return 0;
}

std::vector<std::string> cuda_device_uuids() {
  return {};
}

std::unique_ptr<Device> make_cuda_device(int) {
  throw DeviceError{"this build has no GPU backend"};
}

void detail::synchronize_cuda_device() {
  throw DeviceError{"this build has no GPU backend"};
}

void detail::read_cuda_device(void*, const void*, std::size_t) {
  throw DeviceError{"this build has no GPU backend"};
}

std::uint64_t detail::cuda_memory_bytes() {
  throw DeviceError{"this build has no GPU backend"};
}

int detail::cuda_device_index() {
  throw DeviceError{"this build has no GPU backend"};
}

std::string detail::why_no_cuda_device() {
  return "this build has no GPU backend";
}

}  // namespace lockstep
