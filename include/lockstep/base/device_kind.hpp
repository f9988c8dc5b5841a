// Kinds of devices.
#pragma once

#include <cstdint>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// "cpu" or "cuda".
const char* name_of(DeviceKind kind);

}  // namespace lockstep
