// Time without the pauses of the whole job.
#pragma once

#include <chrono>

namespace lockstep {

/// What the ranks do is measured in this time, so that nobody was busy while a scheduler had suspended the job, or
/// their machine was. It is the steady clock's until a watchdog looks at it again and again. From then on it stands
/// still where the watchdog does not come for longer than `longest_look`, until that says whether the whole job was
/// paused. If it was, the time goes on from there; if this rank alone was, it catches up. It never goes back, and any
/// thread may read it.
class JobTime {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A watchdog looks far more often.
  static constexpr std::chrono::milliseconds longest_look{500};

  static Time now();

  /// For the watchdog: it has come at `now`, and the whole job was paused since its last look, or was not.
  static void look(Time now, bool was_paused);

  /// From here on no watchdog looks.
  static void end();
};

}  // namespace lockstep
