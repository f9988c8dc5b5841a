// Input as a strategy sees it: each rank draws its own component, and all ranks reach the end together.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep::detail {

/// What a rank brings to an agreement on input (agree_on_input).
struct InputOffer {
  bool any = false;       ///< whether this rank has input
  std::string what = {};  ///< that must be the same on every rank, as messages show it: "rows 32 to 64"
  /// What this rank's input looks like, encoded by the caller; empty if it has none.
  std::vector<std::int64_t> outline = {};
  /// Whether this rank must know what the others' input looks like. Not asked where input ends with the first rank's.
  bool lacks_outline = false;
  EndOfInput end = EndOfInput::when_all_end;
};

/// The result of that agreement, the same on every rank.
struct InputAnswer {
  /// Whether there is a step: any rank has input or, with EndOfInput::when_first_ends, all ranks have.
  bool goes_on = false;
  /// The outline of the lowest rank that offered one, if there is a step and any rank lacks an outline; else empty.
  std::vector<std::int64_t> outline = {};
};

/// COLL, blocking, one agreement, and one more message if any rank lacks an outline. Calls `offer` on this rank, in the
/// strategy's scope. MismatchError if the ranks' offers differ in `what`. An exception that leaves `offer` on one rank
/// is rethrown there, and the others throw PeerError.
InputAnswer agree_on_input(Strategy& strategy, const std::function<InputOffer()>& offer, const Here& here);

}  // namespace lockstep::detail
