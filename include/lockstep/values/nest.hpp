// Walks the leaves of what can be reduced or gathered: numbers, tensors and slices, and vectors, tuples, pairs, maps
// and structs of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/comparable.hpp>
#include <lockstep/values/nested_struct.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

/// Numbers that a tensor can hold: float, double, 32-bit and 64-bit signed integers, and 8-bit unsigned ones. Convert
/// others to one of these, such as a std::size_t or a bool to std::int64_t.
template <class T>
concept ReducibleNumber = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint8_t> ||
    (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8) && !std::same_as<T, wchar_t>);

namespace detail {

template <class T>
inline constexpr bool is_tensor_leaf = std::same_as<T, Tensor>;
template <class T>
inline constexpr bool is_leaf = is_tensor_leaf<T> || ReducibleNumber<T> || std::same_as<T, IndexedSlices>;

enum class Leaves { any, tensors };

/// Whether T is such a leaf or a nest of them.
template <class T, Leaves leaves>
inline constexpr bool is_nest = leaves == Leaves::any ? is_leaf<T> : is_tensor_leaf<T>;
template <class T, Leaves leaves>
inline constexpr bool is_nest<std::vector<T>, leaves> = is_nest<T, leaves>;
template <class K, class T, Leaves leaves>
inline constexpr bool is_nest<std::map<K, T>, leaves> = ComparableAcrossRanks<K>&& is_nest<T, leaves>;
template <class... T, Leaves leaves>
inline constexpr bool is_nest<std::tuple<T...>, leaves> = (is_nest<T, leaves> && ...);
template <class A, class B, Leaves leaves>
inline constexpr bool is_nest<std::pair<A, B>, leaves> = is_nest<A, leaves>&& is_nest<B, leaves>;
template <NestedStruct T, Leaves leaves>
inline constexpr bool is_nest<T, leaves> = with_member_types<T>([]<class... M>() {
  return (is_nest<M, leaves> && ...);
});

}  // namespace detail

template <class T>
inline constexpr bool is_reducible = detail::is_nest<T, detail::Leaves::any>;
template <class T>
inline constexpr bool is_gatherable = detail::is_nest<T, detail::Leaves::tensors>;

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

/// Appends the leaves of `nest` to `leaves`, in order: sequences by position, maps by key.
template <Reducible T>
void flatten(const T& nest, std::vector<Leaf>& leaves);

/// A nest like `like`, with its leaves taken from the front of `leaves` in the order of flatten. Drops them from
/// `leaves`.
template <Reducible T>
T unflatten(const T& like, std::span<const Leaf>& leaves);

template <class T>
struct NestWalk;

template <ReducibleNumber T>
struct NestWalk<T> {
  static void flatten(T number, std::vector<Leaf>& leaves) {
    leaves.push_back(Tensor::scalar(static_cast<carrier_t<T>>(number)));
  }
  static T unflatten(T, std::span<const Leaf>& leaves) {
    const T number = static_cast<T>(std::get<Tensor>(leaves.front()).view().elements<carrier_t<T>>()[0]);
    leaves = leaves.subspan(1);
    return number;
  }
};

template <class T>
requires std::same_as<T, Tensor> || std::same_as<T, IndexedSlices>
struct NestWalk<T> {
  static void flatten(const T& leaf, std::vector<Leaf>& leaves) { leaves.push_back(leaf); }
  static T unflatten(const T&, std::span<const Leaf>& leaves) {
    T leaf = std::get<T>(leaves.front());
    leaves = leaves.subspan(1);
    return leaf;
  }
};

template <NestedStruct T>
struct NestWalk<T> {
  static void flatten(const T& nest, std::vector<Leaf>& leaves) {
    std::apply([&](auto... member) { (walk(nest.*member).flatten(nest.*member, leaves), ...); }, Nest<T>::members);
  }
  static T unflatten(const T& like, std::span<const Leaf>& leaves) {
    T made = like;
    std::apply([&](auto... member) { ((made.*member = walk(like.*member).unflatten(like.*member, leaves)), ...); },
               Nest<T>::members);
    return made;
  }

 private:
  template <class M>
  static NestWalk<M> walk(const M&) {
    return {};
  }
};

template <class T>
struct NestWalk<std::vector<T>> {
  static void flatten(const std::vector<T>& nest, std::vector<Leaf>& leaves) {
    for (const T& leaf : nest) NestWalk<T>::flatten(leaf, leaves);
  }
  static std::vector<T> unflatten(const std::vector<T>& like, std::span<const Leaf>& leaves) {
    std::vector<T> made;
    made.reserve(like.size());
    for (const T& leaf : like) made.push_back(NestWalk<T>::unflatten(leaf, leaves));
    return made;
  }
};

template <class K, class T>
struct NestWalk<std::map<K, T>> {
  static void flatten(const std::map<K, T>& nest, std::vector<Leaf>& leaves) {
    for (const auto& [key, leaf] : nest) NestWalk<T>::flatten(leaf, leaves);
  }
  static std::map<K, T> unflatten(const std::map<K, T>& like, std::span<const Leaf>& leaves) {
    std::map<K, T> made;
    for (const auto& [key, leaf] : like) made.emplace_hint(made.end(), key, NestWalk<T>::unflatten(leaf, leaves));
    return made;
  }
};

template <class... T>
struct NestWalk<std::tuple<T...>> {
  static void flatten(const std::tuple<T...>& nest, std::vector<Leaf>& leaves) {
    std::apply([&](const T&... leaf) { (NestWalk<T>::flatten(leaf, leaves), ...); }, nest);
  }
  static std::tuple<T...> unflatten(const std::tuple<T...>& like, std::span<const Leaf>& leaves) {
    // Braces: the only call syntax whose arguments are evaluated in order.
    return std::apply([&](const T&... leaf) { return std::tuple<T...>{NestWalk<T>::unflatten(leaf, leaves)...}; },
                      like);
  }
};

template <class A, class B>
struct NestWalk<std::pair<A, B>> {
  static void flatten(const std::pair<A, B>& nest, std::vector<Leaf>& leaves) {
    NestWalk<A>::flatten(nest.first, leaves);
    NestWalk<B>::flatten(nest.second, leaves);
  }
  static std::pair<A, B> unflatten(const std::pair<A, B>& like, std::span<const Leaf>& leaves) {
    A first = NestWalk<A>::unflatten(like.first, leaves);
    return {std::move(first), NestWalk<B>::unflatten(like.second, leaves)};
  }
};

template <Reducible T>
void flatten(const T& nest, std::vector<Leaf>& leaves) {
  NestWalk<T>::flatten(nest, leaves);
}

template <Reducible T>
T unflatten(const T& like, std::span<const Leaf>& leaves) {
  return NestWalk<T>::unflatten(like, leaves);
}

/// All leaves of `nest`.
template <Reducible T>
std::vector<Leaf> leaves_of(const T& nest) {
  std::vector<Leaf> leaves;
  flatten(nest, leaves);
  return leaves;
}

/// A nest like `like` with these leaves.
template <Reducible T>
T with_leaves(const T& like, std::span<const Leaf> leaves) {
  return unflatten(like, leaves);
}

}  // namespace detail
}  // namespace lockstep
