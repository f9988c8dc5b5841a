// Rows of a table's gradient, such as an embedding's, on their way from torch to a step (sync/step/rows.hpp) and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <lockstep/core/values/values.hpp>

#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

// Rows are on the host. Those of a table of 16-bit floats are f32, so that a sum is rounded once.

/// No row of `table`.
IndexedSlices no_rows_of(const at::Tensor& table);

/// The rows that `gradient` names if it is sparse, else all; each once, in ascending order. Those of one index are
/// added up in their order. Waits for a GPU.
IndexedSlices rows_of(const at::Tensor& gradient, TorchDevice& device);

/// The values of `rows`, in place.
at::Tensor values_of(const IndexedSlices& rows);

/// A coalesced gradient of `table`, on its device. Rounds the values to its type.
at::Tensor sparse_gradient(const IndexedSlices& rows, const at::Tensor& table);

/// The same for this library's optimizers, on the host.
IndexedSlices slices_of(const IndexedSlices& rows, const at::Tensor& table);

}  // namespace lockstep::libtorch
