// What can be reduced or gathered: numbers, tensors and slices, and nests of them (parts.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/comparable.hpp>
#include <lockstep/values/parts.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

/// Numbers that a tensor can hold: float, double, 32-bit and 64-bit signed integers, and 8-bit unsigned ones. Convert
/// others to one of these, such as a std::size_t or a bool to std::int64_t.
template <class T>
concept ReducibleNumber = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint8_t> ||
    (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8) && !std::same_as<T, wchar_t>);

namespace detail {

/// Whether T is a leaf, for which `is_leaf.template operator()<T>()` is true, or a nest of leaves. The ranks compare
/// the keys of maps.
template <class T, class IsLeaf>
constexpr bool is_nest(IsLeaf is_leaf) {
  if constexpr (KeyedParts<T>) {
    return ComparableAcrossRanks<typename PartsOf<T>::Key> && is_nest<typename PartsOf<T>::Part>(is_leaf);
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (is_nest<P>(IsLeaf{}) && ...); });
  } else {
    return is_leaf.template operator()<T>();
  }
}

}  // namespace detail

template <class T>
inline constexpr bool is_reducible = detail::is_nest<T>([]<class Leaf>() {
  return std::same_as<Leaf, Tensor> || ReducibleNumber<Leaf> || std::same_as<Leaf, IndexedSlices>;
});
template <class T>
inline constexpr bool is_gatherable = detail::is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, Tensor>; });

/// What a reduction accepts. The comment below stands on the line that compilers show if a type is refused.
template <class T>
concept Reducible = is_reducible<T>;  // float, double, int32_t, int64_t, uint8_t, Tensor; nests; structs with a Nest<T>

/// What a gather accepts: tensors, which keep their type when they get more rows. The ranks' numbers would be no
/// number, and slices are gathered by their sum.
template <class T>
concept Gatherable = is_gatherable<T>;  // Tensor (for a number, one of shape [1]); nests; structs with a Nest<T>

namespace detail {

/// A part of a nest that a reduction does not take apart further.
using Leaf = std::variant<Tensor, IndexedSlices>;

/// The tensor element that carries a number.
template <ReducibleNumber T>
using carrier_t = std::conditional_t<std::floating_point<T> || std::same_as<T, std::uint8_t>, T,
                                     std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

/// All leaves of `nest`, in the order of for_each_leaf.
template <Reducible T>
std::vector<Leaf> leaves_of(const T& nest) {
  std::vector<Leaf> leaves;
  for_each_leaf(nest, [&]<class L>(const L& leaf) {
    if constexpr (ReducibleNumber<L>) {
      leaves.push_back(Tensor::scalar(static_cast<carrier_t<L>>(leaf)));
    } else {
      leaves.push_back(leaf);
    }
  });
  return leaves;
}

/// A nest like `like` with these leaves.
template <Reducible T>
T with_leaves(const T& like, std::span<const Leaf> leaves) {
  T made = like;
  std::size_t next = 0;
  for_each_leaf(made, [&]<class L>(L& leaf) {
    const Leaf& given = leaves[next++];
    if constexpr (ReducibleNumber<L>) {
      leaf = static_cast<L>(std::get<Tensor>(given).view().elements<carrier_t<L>>()[0]);
    } else {
      leaf = std::get<L>(given);
    }
  });
  return made;
}

}  // namespace detail
}  // namespace lockstep
