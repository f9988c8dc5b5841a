// Memory in slices, one for each rank.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// The bounds of `slices` slices of about equal length. Each but the last is a multiple of `granule` elements long.
std::vector<std::int64_t> even_slices(std::int64_t count, int slices, std::int64_t granule = 64);

}  // namespace lockstep
