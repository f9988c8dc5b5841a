// How a value's type changes between replica and cross-replica context. In a nest, the change applies to each leaf;
// arrays and structs stay whole.
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
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep {

class Variable;

namespace detail {

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
  static local to_local(PerReplica<T> value) { return std::move(value).local(); }
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
  static local to_local(Mirrored<T> value) { return std::move(value).value(); }
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
using local_t = typename Locality<std::remove_cvref_t<T>>::local;  ///< what replica code sees of a T
template <class T>
using merged_t = typename Locality<std::remove_cvref_t<T>>::merged;  ///< what a merge function gets of a T

template <RebuildsParts T>
struct Locality<T> {
  using local = typename PartsOf<T>::template Each<local_t>;
  using merged = typename PartsOf<T>::template Each<merged_t>;
  static local to_local(T nest) {
    return map_parts<local>(nest, []<class P>(auto& part) { return Locality<P>::to_local(std::move(part)); });
  }
  static merged to_merged(T nest) {
    return map_parts<merged>(nest, []<class P>(auto& part) { return Locality<P>::to_merged(std::move(part)); });
  }
};

template <class Fn, class... T>
struct Result {
  using type = void;
};
template <class Fn, class... T>
  requires std::invocable<Fn, T...>
struct Result<Fn, T...> : std::invoke_result<Fn, T...> {};

/// The result of `Fn` for arguments of the types T. Not std::invoke_result_t: a call that does not fit must fail on a
/// named constraint, and some compilers evaluate a function's type before its constraints.
template <class Fn, class... T>
using result_t = typename Result<Fn, T...>::type;

/// The same without references: a copy of what `Fn` refers to.
template <class Fn, class... T>
using value_result_t = std::remove_cvref_t<result_t<Fn, T...>>;

/// The arguments of a call, in one parameter: the place of the call follows it as the last one.
template <class... T>
struct Args {
  std::tuple<T...> values;
};

/// Calls `fn(first…, …)` with each of the arguments as this rank has it (local_t). The arguments are destroyed
/// afterwards, so R must be a value if `fn` may return a reference to one of them.
template <class R, class Fn, class... T, class... First>
R invoke_local(Fn&& fn, Args<T...>& arguments, First&&... first) {
  return std::apply(
      [&](T&... each) -> R {
        return std::invoke(std::forward<Fn>(fn), std::forward<First>(first)...,
                           Locality<T>::to_local(std::move(each))...);
      },
      arguments.values);
}

}  // namespace detail

/// The arguments that a call passes on to a function: `strategy.run(step, args(a, b))`, `merge_call(fn, args(a))`.
/// Copies or moves a and b. Wrap a single argument too, because the place of the call can only follow a single
/// parameter of known type.
template <class... T>
detail::Args<std::decay_t<T>...> args(T&&... values) {
  return {std::tuple<std::decay_t<T>...>{std::forward<T>(values)...}};
}

}  // namespace lockstep
