// What a rank does before an agreement, and may fail in.
#pragma once

#include <exception>
#include <optional>

#include <lockstep/base/here.hpp>

#include "control/meeting_point.hpp"

namespace lockstep::detail {

/// LOCAL. What `attempt` returns. An exception is rethrown on this rank, and the others throw PeerError from the
/// agreement. `in` as for MeetingPoint::fail.
template <class Attempt>
auto announcing_failure(MeetingPoint& meeting, Attempt&& attempt, const std::optional<Here>& in = {}) {
  try {
    return attempt();
  } catch (...) {
    meeting.fail(std::current_exception(), in);
  }
}

}  // namespace lockstep::detail
