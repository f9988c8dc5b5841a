// Kinds of devices.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// "cpu" or "cuda".
std::string_view name_of(DeviceKind kind);

}  // namespace lockstep
