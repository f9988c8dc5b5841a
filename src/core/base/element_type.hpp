// Properties of element types.
#pragma once

#include <cstddef>

#include <lockstep/core/base/dtype.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// Size of one element in bytes.
LOCKSTEP_PARTS_API std::size_t size_of(DType dtype);

/// True for f32, f64, f16 and bf16.
LOCKSTEP_PARTS_API bool is_floating_point(DType dtype);

}  // namespace lockstep
