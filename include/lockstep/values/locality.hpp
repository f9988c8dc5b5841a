// How a value's type changes between replica and cross-replica context. In a nest (vector, optional, map, tuple, pair),
// the change applies to each leaf.
//
//   type                  replica code sees    a merge function gets
//   int                   int                  PerReplica<int>
//   PerReplica<int>       int                  PerReplica<int>
//   Mirrored<int>         int                  Mirrored<int>
//   MirroredVariable      MirroredVariable     MirroredVariable
//   std::pair<int, Mirrored<int>>
//                         pair<int, int>       pair<PerReplica<int>, Mirrored<int>>
#pragma once

#include <concepts>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/values/nest.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

class Variable;

template <class T>
inline constexpr bool is_per_replica = false;
template <class T>
inline constexpr bool is_per_replica<PerReplica<T>> = true;

template <class T>
inline constexpr bool is_mirrored = false;
template <class T>
inline constexpr bool is_mirrored<Mirrored<T>> = true;

/// A value without per-replica components: a mirrored one, or a plain one, which may differ on the other ranks.
template <class T>
concept NotPerReplica = Reducible<T> || is_mirrored<T>;

/// True if a leaf of the nest T is PerReplica.
template <class T>
inline constexpr bool contains_per_replica = is_per_replica<T>;
template <class T>
inline constexpr bool contains_per_replica<std::vector<T>> = contains_per_replica<T>;
template <class T>
inline constexpr bool contains_per_replica<std::optional<T>> = contains_per_replica<T>;
template <class K, class T>
inline constexpr bool contains_per_replica<std::map<K, T>> = contains_per_replica<T>;
template <class... T>
inline constexpr bool contains_per_replica<std::tuple<T...>> = (contains_per_replica<T> || ...);
template <class A, class B>
inline constexpr bool contains_per_replica<std::pair<A, B>> = contains_per_replica<A> || contains_per_replica<B>;

template <NestedStruct T>
inline constexpr bool contains_per_replica<T> = detail::with_member_types<T>([]<class... M>() {
  return (contains_per_replica<M> || ...);
});

/// What `update` accepts. A per-replica argument would let the replicas of a variable drift apart, so it does not
/// compile. Reduce it first.
template <class T>
concept SameOnEveryReplica = !contains_per_replica<std::remove_cvref_t<T>>;

/// The two views of T: `local` is what replica code sees, `merged` is what a merge function gets. A plain value becomes
/// PerReplica when merged, since nothing proves it equal on all ranks. Mirrored values and variables stay what they
/// are.
template <class T>
struct Locality {
  using local = T;
  using merged = PerReplica<T>;
  static local to_local(T value) { return value; }
  static merged to_merged(T value) { return merged{std::move(value)}; }
};

template <>
struct Locality<void> {
  using local = void;
  using merged = PerReplica<void>;
};

template <class T>
struct Locality<PerReplica<T>> {
  using local = T;
  using merged = PerReplica<T>;
  static local to_local(const PerReplica<T>& value) { return value.local(); }
  static merged to_merged(PerReplica<T> value) { return value; }
};

template <>
struct Locality<PerReplica<void>> {
  using local = void;
  using merged = PerReplica<void>;
};

template <class T>
struct Locality<Mirrored<T>> {
  using local = T;
  using merged = Mirrored<T>;
  static local to_local(const Mirrored<T>& value) { return value.value(); }
  static merged to_merged(Mirrored<T> value) { return value; }
};

template <class T>
requires std::derived_from<T, Variable>
struct Locality<T> {
  using local = T;
  using merged = T;
  static local to_local(T variable) { return variable; }
  static merged to_merged(T variable) { return variable; }
};

template <class T>
using local_t = typename Locality<std::remove_cvref_t<T>>::local;
template <class T>
using merged_t = typename Locality<std::remove_cvref_t<T>>::merged;

template <class T>
struct Locality<std::vector<T>> {
  using local = std::vector<local_t<T>>;
  using merged = std::vector<merged_t<T>>;
  static local to_local(const std::vector<T>& nest) {
    local made;
    made.reserve(nest.size());
    for (const T& leaf : nest) made.push_back(Locality<T>::to_local(leaf));
    return made;
  }
  static merged to_merged(std::vector<T> nest) {
    merged made;
    made.reserve(nest.size());
    for (auto&& leaf : nest) made.push_back(Locality<T>::to_merged(std::move(leaf)));  // vector<bool> yields proxies
    return made;
  }
};

template <class T>
struct Locality<std::optional<T>> {
  using local = std::optional<local_t<T>>;
  using merged = std::optional<merged_t<T>>;
  static local to_local(const std::optional<T>& nest) {
    return nest ? local{Locality<T>::to_local(*nest)} : std::nullopt;
  }
  static merged to_merged(std::optional<T> nest) {
    return nest ? merged{Locality<T>::to_merged(*std::move(nest))} : std::nullopt;
  }
};

template <class K, class T>
struct Locality<std::map<K, T>> {
  using local = std::map<K, local_t<T>>;
  using merged = std::map<K, merged_t<T>>;
  static local to_local(const std::map<K, T>& nest) {
    local made;
    for (const auto& [key, leaf] : nest) made.emplace_hint(made.end(), key, Locality<T>::to_local(leaf));
    return made;
  }
  static merged to_merged(std::map<K, T> nest) {
    merged made;
    for (auto& [key, leaf] : nest) made.emplace_hint(made.end(), key, Locality<T>::to_merged(std::move(leaf)));
    return made;
  }
};

template <class... T>
struct Locality<std::tuple<T...>> {
  using local = std::tuple<local_t<T>...>;
  using merged = std::tuple<merged_t<T>...>;
  static local to_local(const std::tuple<T...>& nest) {
    return std::apply([](const T&... leaf) { return local{Locality<T>::to_local(leaf)...}; }, nest);
  }
  static merged to_merged(std::tuple<T...> nest) {
    return std::apply([](T&... leaf) { return merged{Locality<T>::to_merged(std::move(leaf))...}; }, nest);
  }
};

template <class A, class B>
struct Locality<std::pair<A, B>> {
  using local = std::pair<local_t<A>, local_t<B>>;
  using merged = std::pair<merged_t<A>, merged_t<B>>;
  static local to_local(const std::pair<A, B>& nest) {
    return {Locality<A>::to_local(nest.first), Locality<B>::to_local(nest.second)};
  }
  static merged to_merged(std::pair<A, B> nest) {
    return {Locality<A>::to_merged(std::move(nest.first)), Locality<B>::to_merged(std::move(nest.second))};
  }
};

namespace detail {

template <class Fn, class... T>
struct Result {
  using type = void;
};
template <class Fn, class... T>
requires std::invocable<Fn, T...>
struct Result<Fn, T...> : std::invoke_result<Fn, T...> {
};

/// The result of `Fn` for arguments of the types T. Not std::invoke_result_t: a call that does not fit must fail on a
/// named constraint, and some compilers evaluate a function's type before its constraints.
template <class Fn, class... T>
using result_t = typename Result<Fn, T...>::type;

/// The same without references: a copy of what `Fn` refers to.
template <class Fn, class... T>
using value_result_t = std::remove_cvref_t<result_t<Fn, T...>>;

}  // namespace detail

/// The arguments of a merge function. They have a type of their own so that the call site can follow as the last
/// parameter.
template <class... T>
struct Args {
  std::tuple<T...> values;
};

/// `ctx.merge_call(merge_fn, args(a, b))`: copies or moves a and b.
template <class... T>
Args<std::decay_t<T>...> args(T&&... values) {
  return {std::tuple<std::decay_t<T>...>{std::forward<T>(values)...}};
}

}  // namespace lockstep
