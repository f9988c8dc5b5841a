// What reductions take and return, by the type of the value, and how they make the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

namespace lockstep {

class Strategy;

namespace detail {

/// One call that reduces a value over the replicas of a strategy. Its methods throw ContextError, which begins with the
/// name, outside the strategy's cross-replica context and the default one.
struct LOCKSTEP_API ReduceCall {
  Strategy& strategy;
  std::string_view name;
  ReduceOp op;
  Here here;
  std::optional<int> to = {};    ///< the only replica that gets the result; empty: every replica
  std::string destination = {};  ///< how tags name the variables that it is for

  /// COLL, blocking. Reduces the leaves of the value, in place.
  void reduce(AnyValue value) const;
  /// The same for leaves. `structure` says how they are arranged.
  void reduce(std::vector<Leaf>& leaves, std::string_view structure) const;

  /// LOCAL. Reduces a value other than a PerReplica: leaves a mean unchanged, and replaces the leaves of a sum by
  /// copies on the same device. InvalidArgument for the sum of a value that does not say what each of several replicas
  /// adds.
  void reduce_itself(AnyValue value, bool is_mirrored) const;
};

/// The type that a reduction of a T adds up. It adds up nothing of a Mirrored, so any Reducible type does for that.
template <class T>
struct Summand {
  using type = T;
};
template <class T>
struct Summand<PerReplica<T>> {
  using type = T;
};
template <class T>
struct Summand<Mirrored<T>> {
  using type = int;
};

/// What Strategy::reduce accepts: a PerReplica of what is Reducible, a plain value that is, any Mirrored, and the
/// results of StrategyExtended::map.
template <class T>
concept ReducibleValue = Reducible<typename Summand<T>::type>;

/// What this rank gets of the reduction of a T.
template <class T>
using reduced_t = local_t<std::conditional_t<is_mirrored<T>, T, typename Summand<T>::type>>;

template <class T>
reduced_t<T> reduced(const ReduceCall& call, const T& value) {
  reduced_t<T> result = detail::as<local_t>(value);
  if constexpr (is_per_replica<T>) {
    call.reduce(result);
  } else {
    call.reduce_itself(result, is_mirrored<T>);
  }
  return result;
}

}  // namespace detail
}  // namespace lockstep
