// Cuts a batch that every rank has into the pieces of the replicas.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>

namespace lockstep::detail {

/// The tensors of a batch, in place.
using RowTensors = std::vector<std::variant<Tensor*, SparseTensor*>>;

/// Those of a BatchOfRows.
RowTensors tensors_in(AnyValue batch);

/// Replaces the tensors by the piece of replica `replica` of `replicas`: dense ones in the same memory, sparse ones in
/// new memory. `of_device` is the stream of this rank's device. InvalidArgument if tensors have no rows or different
/// numbers of them, or if the replicas do not divide the rows of a dense one.
void split_batch(const RowTensors& features, const RowTensors& labels, int replica, int replicas, Stream& of_device);

/// "f32[2, 3], sparse f32[2, 9]"; "nothing" without tensors.
std::string describe(const RowTensors& tensors);

}  // namespace lockstep::detail
