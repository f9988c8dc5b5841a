#pragma once

#include <cstdint>

#include <lockstep/core/base/shape.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// The product of the extents; 1 for a scalar. InvalidArgument if an extent is negative or the product overflows.
LOCKSTEP_PARTS_API std::int64_t element_count(const Shape& shape);

}  // namespace lockstep
