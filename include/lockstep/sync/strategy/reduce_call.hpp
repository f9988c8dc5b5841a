// What reductions take and return, by the type of the value, and how they make the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
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

  /// COLL, blocking. Replaces the leaves by the reduced ones. `structure` says how they are arranged.
  void reduce(std::vector<Leaf>& leaves, std::string_view structure) const;

  /// LOCAL. InvalidArgument for the sum of a value that does not say what each of several replicas adds.
  void require_value_itself(bool is_mirrored) const;

  /// LOCAL. Replaces the leaves by copies on the same device.
  void copy(std::vector<Leaf>& leaves) const;
};

/// The reduction of a T. `type` is its result if every rank gets it: Mirrored, except for a plain value, which stays
/// plain. `Part` is the type that is added up: of a Mirrored, which is not and so may be of any type, a number.
/// `local` is this rank's result.
template <class T>
struct ReductionOf {
  using Part = T;
  using type = T;

  static T local(const ReduceCall& call, const T& value) {
    call.require_value_itself(false);
    if (call.op != ReduceOp::sum) return value;
    std::vector<Leaf> leaves = leaves_of(value);
    call.copy(leaves);
    return with_leaves(value, leaves);
  }
};
template <class T>
struct ReductionOf<Mirrored<T>> {
  using Part = int;
  using type = Mirrored<T>;

  static T local(const ReduceCall& call, const Mirrored<T>& value) {
    call.require_value_itself(true);
    return value.value();
  }
};
template <class T>
struct ReductionOf<PerReplica<T>> {
  using Part = T;
  using type = Mirrored<T>;

  static T local(const ReduceCall& call, const PerReplica<T>& value) {
    std::vector<Leaf> leaves = leaves_of(value.local());
    call.reduce(leaves, structure_of(value.local()));
    return with_leaves(value.local(), leaves);
  }
};

template <class T>
using reduced_t = typename ReductionOf<T>::type;  ///< what a reduction makes of a T

/// What Strategy::reduce accepts: a PerReplica of what is Reducible, a plain value that is, any Mirrored, and the
/// results of StrategyExtended::map.
template <class T>
concept ReducibleValue = Reducible<typename ReductionOf<T>::Part>;

}  // namespace detail
}  // namespace lockstep
