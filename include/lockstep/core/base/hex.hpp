// Digests as text.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// 16 lower-case hexadecimal digits.
LOCKSTEP_API std::string to_hex(std::uint64_t digest);

}  // namespace lockstep
