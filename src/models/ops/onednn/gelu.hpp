// GELU of f32 and bf16 by oneDNN, with vectors as wide as the machine's.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::ops::onednn {

/// y = gelu(x), and dx = dy times gelu's derivative at x. Views must have one shape, one type and at least one element.
/// DeviceError if the library fails.
void gelu(const TensorView& x, const TensorView& y);
void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx);

}  // namespace lockstep::ops::onednn
