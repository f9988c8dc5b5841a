#pragma once

#include <cstdint>

#include <lockstep/base/shape.hpp>

#include "base/parts.hpp"

namespace lockstep {

/// The product of the extents; 1 for a scalar. InvalidArgument if an extent is negative or the product overflows.
LOCKSTEP_PARTS_API std::int64_t element_count(const Shape& shape);

}  // namespace lockstep
