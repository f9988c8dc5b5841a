// A clock that stands still while the process does.
#pragma once

#include <chrono>

#include "core/base/parts.hpp"

namespace lockstep {

/// The time in which this process looked at the clock: between two looks, by any of its threads, at most a second
/// passes. A supervisor that measures its patience by this clock in loops that look more often does not count the time
/// in which it was stopped, or suspended with the job that it waits for. Starts at zero.
class AwakeClock {
 public:
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<AwakeClock>;
  static constexpr bool is_steady = false;

  LOCKSTEP_PARTS_API static time_point now();
};

}  // namespace lockstep
