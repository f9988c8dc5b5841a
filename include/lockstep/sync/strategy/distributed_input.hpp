// Input as a strategy sees it: each rank draws its own component, and all ranks reach the end together.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/values/locality.hpp>

namespace lockstep {

namespace detail {

/// When the input ends if ranks have different amounts of it (InputOptions::EndOfInput). The ranks compare it.
enum class EndOfInput : std::uint8_t {
  when_all_end,    ///< a rank without input takes part with an empty batch while any other has input
  when_first_ends  ///< the input ends on all ranks before the first step that some rank has no input for
};

/// Where a step, or a loop of steps, takes its inputs from, such as a DistributedIterator. `next(here)` is COLL: every
/// rank gets its component of the next input, or, at the end, every rank gets nothing.
template <class T>
concept DistributedInput = requires(T& input, Here here) {
  requires is_per_replica<typename std::remove_cvref_t<decltype(input.next(here))>::value_type>;
};

/// The PerReplica that `next` returns.
template <DistributedInput T>
using next_input_t = typename std::remove_cvref_t<decltype(std::declval<T&>().next(Here{}))>::value_type;

/// What a rank brings to an agreement on input (StrategyExtended::agree_on_input).
struct InputOffer {
  bool any = false;  ///< whether this rank has input
  std::string what;  ///< what must be the same on every rank, as the error message shows it: "rows 32 to 64"
  /// What this rank's input looks like, encoded by the caller; empty if it has none.
  std::vector<std::int64_t> outline = {};
  /// Whether this rank must know what the others' input looks like. Not asked where input ends with the first rank's.
  bool lacks_outline = false;
  EndOfInput end = EndOfInput::when_all_end;
};

/// The result of that agreement, the same on every rank.
struct InputAnswer {
  /// Whether there is a step: any rank has input, or, where input ends with the first rank's, all have.
  bool goes_on = false;
  /// The outline of the lowest rank that offered one, if there is a step and any rank lacks an outline; else empty.
  std::vector<std::int64_t> outline = {};
};

}  // namespace detail
}  // namespace lockstep
