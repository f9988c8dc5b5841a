#include <cstring>

#include <lockstep/device/device.hpp>

#include "device/cuda.hpp"

namespace lockstep {

const char* name_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
  }
  return "?";
}

void read_device(DeviceKind kind, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  switch (kind) {
    case DeviceKind::cpu: std::memcpy(to, from, bytes); return;
    case DeviceKind::cuda: detail::read_cuda_device(to, from, bytes); return;
  }
}

}  // namespace lockstep
