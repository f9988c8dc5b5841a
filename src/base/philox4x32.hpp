// The generator below RandomStream.
#pragma once

#include <array>
#include <cstdint>

#include <lockstep/base/philox.hpp>

namespace lockstep {

/// Philox4x32-10 itself: 128 random bits for a 128-bit counter under a 64-bit key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

}  // namespace lockstep
