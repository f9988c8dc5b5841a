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
};
template <class T>
struct Locality<PerReplica<T>> {
  using local = T;
  using merged = PerReplica<T>;
};
template <class T>
struct Locality<Mirrored<T>> {
  using local = T;
  using merged = Mirrored<T>;
};
template <std::derived_from<Variable> T>
struct Locality<T> {
  using local = T;
  using merged = T;
};

template <class T>
using local_t = typename Locality<std::remove_cvref_t<T>>::local;  ///< what replica code sees of a T
template <class T>
using merged_t = typename Locality<std::remove_cvref_t<T>>::merged;  ///< what a merge function gets of a T

template <RebuildsParts T>
struct Locality<T> {
  using local = typename PartsOf<T>::template Each<local_t>;
  using merged = typename PartsOf<T>::template Each<merged_t>;
};

/// The value as View sees it, which is local_t or merged_t.
template <template <class> class View, class T>
View<T> as(T value) {
  if constexpr (std::same_as<View<T>, T>) {
    return value;
  } else if constexpr (is_per_replica<T>) {
    return std::move(value).local();
  } else if constexpr (is_mirrored<T>) {
    return std::move(value).value();
  } else if constexpr (RebuildsParts<T>) {
    return map_parts<View<T>>(value, []<class P>(auto&& part) { return detail::as<View, P>(std::move(part)); });
  } else {
    return View<T>{std::move(value)};
  }
}

/// What `Fn` returns for arguments of the types T, as a value.
template <class Fn, class... T>
using value_result_t = std::remove_cvref_t<std::invoke_result_t<Fn, T...>>;

/// The arguments of a call, in one parameter: the place of the call follows it as the last one.
template <class... T>
struct Args {
  std::tuple<T...> values;
};

/// Calls `fn(first…, …)` with each of the arguments as View sees it. The arguments are destroyed afterwards, so R must
/// be a value if `fn` may return a reference to one of them.
template <template <class> class View, class R, class Fn, class... T, class... First>
R invoke_as(Fn&& fn, Args<T...>& arguments, First&&... first) {
  const auto call = [&](T&... each) -> R {
    return std::invoke(std::forward<Fn>(fn), std::forward<First>(first)..., detail::as<View, T>(std::move(each))...);
  };
  return std::apply(call, arguments.values);
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
