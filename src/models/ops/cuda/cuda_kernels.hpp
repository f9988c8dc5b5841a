// The kernels on GPU memory.
#pragma once

#include <memory>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops::cuda {

/// `stream` must be a GPU's, and outlive the kernels.
std::unique_ptr<Kernels> make_kernels(Stream& stream);

/// `convert` of core/tensor/convert.hpp on GPU memory. Operands must be f32 and bf16, in either order, with the same
/// number of elements.
void convert(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace lockstep::ops::cuda
