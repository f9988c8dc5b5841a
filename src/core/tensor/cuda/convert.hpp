// `convert` of core/tensor/convert.hpp on GPU memory.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::detail::cuda {

/// Operands must be f32 and bf16, in either order, with the same number of elements.
void convert(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace lockstep::detail::cuda
