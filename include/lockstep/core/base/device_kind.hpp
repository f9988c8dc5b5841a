// Kinds of devices.
#pragma once

#include <cstdint>
#include <string_view>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

enum class LOCKSTEP_API DeviceKind : std::uint8_t { cpu, cuda };

/// "cpu" or "cuda".
LOCKSTEP_API std::string_view name_of(DeviceKind kind);

}  // namespace lockstep
