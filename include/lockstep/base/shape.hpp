// Shapes of tensors: one extent per dimension, outermost first. An empty shape is a scalar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

using Shape = std::vector<std::int64_t>;

/// The product of the extents; 1 for a scalar. InvalidArgument if an extent is negative or the product overflows.
std::int64_t element_count(const Shape& shape);

/// "[512, 784]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

}  // namespace lockstep
