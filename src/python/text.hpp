// What messages say of tensors and calls.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace lockstep::python {

/// Whether both have one type and shape.
bool is_like(const at::Tensor& tensor, const at::Tensor& other);

/// "float32[3, 4]", or "sparse float32[3, 4]"
std::string text_of(const at::Tensor& tensor);

/// "float32[3], float32[4]", or "nothing"
std::string text_of(const std::vector<at::Tensor>& tensors);

/// "float32"
std::string name_of(at::ScalarType type);

/// "SUM"
std::string name_of(const c10d::ReduceOp& op);

}  // namespace lockstep::python
