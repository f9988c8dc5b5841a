#include "core/device/device.hpp"

#include <cstring>

#include <unistd.h>

#include <lockstep/core/base/device_kind.hpp>

#include "core/device/devices.hpp"
#include "core/device/gpu_backend.hpp"
#include "core/device/host_wait.hpp"

namespace lockstep {

void Event::synchronize() {
  detail::wait_on_host([this] { return done(); });
}

void read_device(DeviceKind kind, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  switch (kind) {
    case DeviceKind::cpu: std::memcpy(to, from, bytes); return;
    case DeviceKind::cuda: detail::gpu_backend().read_device(to, from, bytes); return;
  }
}

void synchronize_device(DeviceKind kind) {
  if (kind == DeviceKind::cuda) detail::gpu_backend().synchronize_device();
}

std::uint64_t memory_bytes(DeviceKind kind) {
  if (kind == DeviceKind::cuda) return detail::gpu_backend().memory_bytes();
  return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace lockstep
