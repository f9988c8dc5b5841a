// How many blocks a launch takes. Every kernel walks on by the width of its grid, so that any number would do the work:
// these fill a GPU without paying for blocks that find nothing left.
#pragma once

#include <cstdint>

namespace lockstep::ops::cuda {

/// Enough for any GPU to be busy, and below what each dimension of a grid may have.
inline constexpr std::int64_t most_blocks = 4096;

/// Blocks for `count` pieces of work, `per_block` at a time. At least one: CUDA refuses to launch none.
constexpr unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  const std::int64_t blocks = count / per_block + (count % per_block != 0);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most_blocks ? blocks : most_blocks);
}

}  // namespace lockstep::ops::cuda
