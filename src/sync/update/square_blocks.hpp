// How sum_of_squares cuts its operands, on the host and on a GPU alike.
#pragma once

#include <cstdint>

#include "core/base/host_device.hpp"

namespace lockstep::detail {

/// Elements per block.
inline constexpr std::int64_t square_block = 4096;

/// Sums per block before they are folded; threads per block on a GPU. A power of two that divides square_block.
inline constexpr std::int64_t square_lanes = 256;

/// Number of blocks in a part of `count` elements.
LOCKSTEP_HOST_DEVICE constexpr std::int64_t square_blocks(std::int64_t count) {
  return count / square_block + (count % square_block != 0);
}

}  // namespace lockstep::detail
