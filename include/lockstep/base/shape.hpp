// Shapes of tensors: one extent per dimension, outermost first. An empty shape is a scalar.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

using Shape = std::vector<std::int64_t>;

/// "[512, 784]"; "[]" for a scalar.
std::string describe(const Shape& shape);

}  // namespace lockstep
