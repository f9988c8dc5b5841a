// Input as a strategy sees it: each rank draws its own component, and all of them come to the end together.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include <lockstep/control/tag.hpp>
#include <lockstep/values/locality.hpp>

namespace lockstep {

/// What a step, or a loop of steps, takes its inputs from; DistributedIterator is one. `next(here)` is COLL: every rank
/// gets its component of the next input, or, at the end, every rank gets nothing.
template <class T>
concept DistributedInput = requires(T& input, Here here) {
  requires is_per_replica<typename std::remove_cvref_t<decltype(input.next(here))>::value_type>;
};

/// The PerReplica that `next` gives.
template <DistributedInput T>
using next_input_t = typename std::remove_cvref_t<decltype(std::declval<T&>().next(Here{}))>::value_type;

/// As a step gets it.
template <DistributedInput T>
using step_input_t = const next_input_t<T>&;

/// What a rank brings to an agreement on input (StrategyExtended::agree_on_input).
struct InputOffer {
  bool any = false;  ///< whether this rank has some
  std::string what;  ///< what must be the same on every rank, for the message where it is not: "rows 32 to 64"
};

}  // namespace lockstep
