// Which host values ranks can compare. They compare what a value means, not where it lies.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/nested_struct.hpp>

namespace lockstep {
namespace detail {

template <class T>
concept Optional = std::same_as<T, std::optional<typename T::value_type>>;

template <class T>
constexpr bool is_comparable();

template <class T, std::size_t... I>
constexpr bool are_comparable(std::index_sequence<I...>) {
  return (is_comparable<std::remove_cv_t<std::tuple_element_t<I, T>>>() && ...);
}

template <class T>
constexpr bool is_comparable() {
  if constexpr (std::is_pointer_v<T>) {
    return false;  // an address means something else in another process
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, Tensor> ||
                       std::convertible_to<const T&, std::string_view>) {
    return true;
  } else if constexpr (requires(const T& range) { range.begin(), range.end(); }) {
    return is_comparable<std::remove_cvref_t<decltype(*std::declval<const T&>().begin())>>();
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return are_comparable<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (Optional<T>) {
    return is_comparable<typename T::value_type>();
  } else if constexpr (NestedStruct<T>) {
    return with_member_types<T>([]<class... M>() { return (is_comparable<M>() && ...); });
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
