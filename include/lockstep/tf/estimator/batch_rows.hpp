// Batches that are cut along their rows, whatever they are made of.
#pragma once

#include <concepts>
#include <variant>
#include <vector>

#include <lockstep/core/tensor/sparse_tensor.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/nest.hpp>

namespace lockstep::detail {

template <class T>
inline constexpr bool has_rows =
    is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, Tensor> || std::same_as<Leaf, SparseTensor>; });

/// What model functions take: Tensor and SparseTensor, and nests of them. Samples are rows, along the first dimension.
template <class T>
concept BatchOfRows = has_rows<T>;

/// The tensors of a batch, in place.
using RowTensors = std::vector<std::variant<Tensor*, SparseTensor*>>;

/// Appends the tensors of `batch`, in the order of for_each_leaf.
template <BatchOfRows T>
void append_tensors(T& batch, RowTensors& tensors) {
  for_each_leaf(batch, [&](auto& tensor) { tensors.emplace_back(&tensor); });
}

}  // namespace lockstep::detail
