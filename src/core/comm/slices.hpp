// Memory in slices, one for each rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// The bounds of `slices` slices of about equal length. Each but the last is a multiple of `granule` elements long.
std::vector<std::int64_t> even_slices(std::int64_t count, int slices, std::int64_t granule = 64);

/// The length of the longest slice.
std::int64_t longest_slice(std::span<const std::int64_t> bounds);

}  // namespace lockstep
