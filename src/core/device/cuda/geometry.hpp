// Number of blocks in a launch. Every kernel strides by the size of its grid, so any number would do the work. These
// fill a GPU without paying for blocks that find nothing left to do.
#pragma once

#include <cstdint>

namespace lockstep::detail::cuda {

/// Enough to keep any GPU busy, and below the limit of each dimension of a grid.
inline constexpr std::int64_t most_blocks = 4096;

/// Blocks for `count` pieces of work, `per_block` at a time. At least one, because CUDA refuses to launch none.
constexpr unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  const std::int64_t blocks = count / per_block + (count % per_block != 0);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most_blocks ? blocks : most_blocks);
}

}  // namespace lockstep::detail::cuda
