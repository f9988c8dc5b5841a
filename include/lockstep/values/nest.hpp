// Walking the leaves of what can be reduced: numbers, tensors, and vectors, tuples, pairs and maps of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// Numbers that a tensor can hold: float, double, signed integers of 32 and 64 bits, and 8-bit unsigned ones.
template <class T>
concept ReducibleNumber = std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::uint8_t> ||
    (std::signed_integral<T> && (sizeof(T) == 4 || sizeof(T) == 8) && !std::same_as<T, wchar_t>);

template <class T>
inline constexpr bool is_reducible = ReducibleNumber<T> || std::same_as<T, Tensor>;
template <class T>
inline constexpr bool is_reducible<std::vector<T>> = is_reducible<T>;
template <class K, class T>
inline constexpr bool is_reducible<std::map<K, T>> = is_reducible<T>;
template <class... T>
inline constexpr bool is_reducible<std::tuple<T...>> = (is_reducible<T> && ...);
template <class A, class B>
inline constexpr bool is_reducible<std::pair<A, B>> = is_reducible<A>&& is_reducible<B>;

/// What a reduction takes.
template <class T>
concept Reducible = is_reducible<T>;

namespace detail {

/// The tensor element that carries a number.
template <ReducibleNumber T>
using carrier_t = std::conditional_t<std::floating_point<T> || std::same_as<T, std::uint8_t>, T,
                                     std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>;

/// Appends the leaves of `nest` to `leaves`, in order: sequences by position, maps by key.
template <Reducible T>
void flatten(const T& nest, std::vector<Tensor>& leaves);

/// A nest like `like` with its leaves taken from `leaves`, in the order of flatten.
template <Reducible T>
T unflatten(const T& like, std::span<const Tensor>& leaves);

template <class T>
struct NestWalk;

template <ReducibleNumber T>
struct NestWalk<T> {
  static void flatten(T number, std::vector<Tensor>& leaves) {
    leaves.push_back(Tensor::scalar(static_cast<carrier_t<T>>(number)));
  }
  static T unflatten(T, std::span<const Tensor>& leaves) {
    const T number = static_cast<T>(leaves.front().view().elements<carrier_t<T>>()[0]);
    leaves = leaves.subspan(1);
    return number;
  }
};

template <>
struct NestWalk<Tensor> {
  static void flatten(const Tensor& tensor, std::vector<Tensor>& leaves) { leaves.push_back(tensor); }
  static Tensor unflatten(const Tensor&, std::span<const Tensor>& leaves) {
    Tensor tensor = leaves.front();
    leaves = leaves.subspan(1);
    return tensor;
  }
};

template <class T>
struct NestWalk<std::vector<T>> {
  static void flatten(const std::vector<T>& nest, std::vector<Tensor>& leaves) {
    for (const T& leaf : nest) NestWalk<T>::flatten(leaf, leaves);
  }
  static std::vector<T> unflatten(const std::vector<T>& like, std::span<const Tensor>& leaves) {
    std::vector<T> made;
    made.reserve(like.size());
    for (const T& leaf : like) made.push_back(NestWalk<T>::unflatten(leaf, leaves));
    return made;
  }
};

template <class K, class T>
struct NestWalk<std::map<K, T>> {
  static void flatten(const std::map<K, T>& nest, std::vector<Tensor>& leaves) {
    for (const auto& [key, leaf] : nest) NestWalk<T>::flatten(leaf, leaves);
  }
  static std::map<K, T> unflatten(const std::map<K, T>& like, std::span<const Tensor>& leaves) {
    std::map<K, T> made;
    for (const auto& [key, leaf] : like) made.emplace_hint(made.end(), key, NestWalk<T>::unflatten(leaf, leaves));
    return made;
  }
};

template <class... T>
struct NestWalk<std::tuple<T...>> {
  static void flatten(const std::tuple<T...>& nest, std::vector<Tensor>& leaves) {
    std::apply([&](const T&... leaf) { (NestWalk<T>::flatten(leaf, leaves), ...); }, nest);
  }
  static std::tuple<T...> unflatten(const std::tuple<T...>& like, std::span<const Tensor>& leaves) {
    // Braces: the only call syntax whose arguments are evaluated in order.
    return std::apply([&](const T&... leaf) { return std::tuple<T...>{NestWalk<T>::unflatten(leaf, leaves)...}; },
                      like);
  }
};

template <class A, class B>
struct NestWalk<std::pair<A, B>> {
  static void flatten(const std::pair<A, B>& nest, std::vector<Tensor>& leaves) {
    NestWalk<A>::flatten(nest.first, leaves);
    NestWalk<B>::flatten(nest.second, leaves);
  }
  static std::pair<A, B> unflatten(const std::pair<A, B>& like, std::span<const Tensor>& leaves) {
    A first = NestWalk<A>::unflatten(like.first, leaves);
    return {std::move(first), NestWalk<B>::unflatten(like.second, leaves)};
  }
};

template <Reducible T>
void flatten(const T& nest, std::vector<Tensor>& leaves) {
  NestWalk<T>::flatten(nest, leaves);
}

template <Reducible T>
T unflatten(const T& like, std::span<const Tensor>& leaves) {
  return NestWalk<T>::unflatten(like, leaves);
}

}  // namespace detail
}  // namespace lockstep
