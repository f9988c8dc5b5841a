// Sparse tensors, as rows of bytes that a group gathers: those of a rank after those of the one before.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::python {

/// A row for each index of the tensor (COO), once: the index, and the values there.
Tensor rows_of(const at::Tensor& sparse);

/// A tensor like `like` whose values are, at each index, the sum of those in `rows`, in their order. Floats of 16 bits
/// are added up as float32.
at::Tensor sum_of_rows(const Tensor& rows, const at::Tensor& like);

}  // namespace lockstep::python
