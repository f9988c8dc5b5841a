// What a process says of itself while it is inside the driver of its GPU: a call there may never return, and the thread
// that made it cannot tell.
#pragma once

#include <cstdint>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// As long as it lives, its thread makes a call to its GPU's driver, or to a library that calls the driver. The
/// watchdog finds a call that does not return. Leave it out on threads that only watch or wait for the GPU: their calls
/// would hide one that is stuck, or look like one. A copy to pageable memory counts although it waits for the GPU.
class [[nodiscard]] LOCKSTEP_PARTS_API DeviceCall {
 public:
  DeviceCall() noexcept;
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;
  ~DeviceCall();
};

/// How many calls the threads of this process have begun and ended.
struct DeviceCalls {
  std::uint64_t begun = 0;
  std::uint64_t ended = 0;

  friend bool operator==(const DeviceCalls&, const DeviceCalls&) = default;
};

/// From any thread.
DeviceCalls device_calls();

}  // namespace lockstep::detail
