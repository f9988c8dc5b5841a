// Torch's elements as those of lockstep.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::python {

/// New memory for `count` tensors like this one, one after the other: contiguous, with one more dimension.
at::Tensor stacked_like(const at::Tensor& tensor, std::int64_t count);

/// The bytes of a contiguous tensor.
TensorView bytes_of(const at::Tensor& contiguous);

/// The numbers that a group adds up so that it adds up the tensor's elements: the same ones, both parts of each complex
/// number, or unsigned integers in the place of signed ones. Empty for a type that needs a reduction of its own.
std::optional<TensorView> numbers_of(const at::Tensor& contiguous);

/// InvalidArgument unless `op` can reduce elements of this type: AVG only floating-point and complex ones, MIN and MAX
/// none that are complex, bitwise operations only integers and bool, and no operation floats of 8 bits or fewer.
void require_reducible(const c10d::ReduceOp& op, at::ScalarType type, const Here& here);

/// Whether a group's sum, with `finish_sum` after it, is the reduction.
bool is_sum(const c10d::ReduceOp& op, const at::Tensor& tensor);

/// After the sum of `ranks`: divides it for AVG.
void finish_sum(const c10d::ReduceOp& op, const at::Tensor& sum, int ranks);

/// Combines the first dimension of `parts`, the ranks' in their order, into `result`.
void reduce(const c10d::ReduceOp& op, const at::Tensor& parts, const at::Tensor& result);

/// InvalidArgument unless the tensor is dense and in the host's memory.
void require_on_host(const at::Tensor& tensor, const Here& here);

}  // namespace lockstep::python
