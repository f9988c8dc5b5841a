// Batches that are cut along their rows, whatever they are made of.
#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/tensor/sparse_tensor.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/comparable.hpp>
#include <lockstep/values/nested_struct.hpp>

namespace lockstep {
namespace detail {

template <class T>
concept RowTensor = std::same_as<T, Tensor> || std::same_as<T, SparseTensor>;

template <class T>
constexpr bool has_rows() {
  if constexpr (RowTensor<T>) {
    return true;
  } else if constexpr (NestedStruct<T>) {
    return with_member_types<T>([]<class... M>() { return (has_rows<M>() && ...); });
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (has_rows<std::tuple_element_t<I, T>>() && ...);
    }
    (std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (requires { typename T::mapped_type; }) {
    return ComparableAcrossRanks<typename T::key_type> && has_rows<typename T::mapped_type>();
  } else if constexpr (std::ranges::range<T>) {
    return has_rows<std::ranges::range_value_t<T>>();
  } else {
    return false;
  }
}

}  // namespace detail

/// What model functions take: Tensor and SparseTensor, vectors, tuples, pairs and maps of them, and structs with a Nest
/// of them. Samples are rows, along the first dimension.
template <class T>
concept BatchOfRows = detail::has_rows<T>();

namespace detail {

/// The tensors of a batch, in place.
using RowTensors = std::vector<std::variant<Tensor*, SparseTensor*>>;

/// Appends the tensors of `batch`, in order: sequences by position, maps by key.
template <BatchOfRows T>
void append_tensors(T& batch, RowTensors& tensors) {
  if constexpr (RowTensor<T>) {
    tensors.emplace_back(&batch);
  } else if constexpr (NestedStruct<T>) {
    std::apply([&](auto... member) { (append_tensors(batch.*member, tensors), ...); }, Nest<T>::members);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&](auto&... each) { (append_tensors(each, tensors), ...); }, batch);
  } else if constexpr (requires { typename T::mapped_type; }) {
    for (auto& [key, each] : batch) append_tensors(each, tensors);
  } else {
    for (auto& each : batch) append_tensors(each, tensors);
  }
}

}  // namespace detail
}  // namespace lockstep
