// What a rank does before an agreement, and may fail in.
#pragma once

#include <exception>
#include <optional>
#include <utility>

#include <lockstep/core/base/here.hpp>

#include "core/control/meeting_point.hpp"

namespace lockstep::detail {

/// LOCAL. Returns what `attempt` returns. An exception is rethrown on this rank, and the others throw PeerError from
/// the agreement. `in` is as for MeetingPoint::fail.
template <class Attempt>
auto announcing_failure(MeetingPoint& meeting, const std::optional<Here>& in, Attempt&& attempt) {
  try {
    return attempt();
  } catch (...) {
    meeting.fail(std::current_exception(), in);
  }
}
template <class Attempt>
auto announcing_failure(MeetingPoint& meeting, Attempt&& attempt) {
  return announcing_failure(meeting, std::nullopt, std::forward<Attempt>(attempt));
}

}  // namespace lockstep::detail
