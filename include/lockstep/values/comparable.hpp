// Which host values ranks can compare. They compare what a value means, not where it lies.
#pragma once

#include <concepts>
#include <string_view>
#include <type_traits>
#include <utility>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/parts.hpp>

namespace lockstep {
namespace detail {

template <class T>
constexpr bool is_comparable() {
  if constexpr (std::is_pointer_v<T>) {
    return false;  // an address means something else in another process
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, Tensor> ||
                       std::convertible_to<const T&, std::string_view>) {
    return true;
  } else if constexpr (KeyedParts<T>) {
    return is_comparable<typename PartsOf<T>::Key>() && is_comparable<typename PartsOf<T>::Part>();
  } else if constexpr (HasParts<T>) {
    return with_part_types<T>([]<class... P>() { return (is_comparable<std::remove_cv_t<P>>() && ...); });
  } else if constexpr (requires(const T& range) { range.begin(), range.end(); }) {
    return is_comparable<std::remove_cvref_t<decltype(*std::declval<const T&>().begin())>>();
  } else {
    return std::has_unique_object_representations_v<T>;  // compared by their bytes
  }
}

}  // namespace detail

/// A host value that ranks can compare: numbers, enums, text, tensors; containers, optionals and tuples of those;
/// structs, by the members that their Nest names; and plain structs without padding.
template <class T>
concept ComparableAcrossRanks = detail::is_comparable<T>();

}  // namespace lockstep
