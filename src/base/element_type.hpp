// Properties of element types.
#pragma once

#include <cstddef>

#include <lockstep/base/dtype.hpp>

namespace lockstep {

/// Size of one element in bytes.
std::size_t size_of(DType dtype);

/// True for f32, f64, f16 and bf16.
bool is_floating_point(DType dtype);

}  // namespace lockstep
