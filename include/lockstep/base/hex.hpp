// Digests as text.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// 16 lower-case hexadecimal digits.
std::string to_hex(std::uint64_t digest);

}  // namespace lockstep
