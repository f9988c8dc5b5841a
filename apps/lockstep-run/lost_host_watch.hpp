// Finds out that a job does not end which has lost a host.
#pragma once

#include <chrono>
#include <optional>

#include "apps/lockstep-run/job_report.hpp"
#include "core/base/awake_clock.hpp"

namespace lockstep::run {

/// Ranks that cannot reach a host end, but a launcher may wait for its processes there: MPICH's does so for ever.
class LostHostWatch {
 public:
  using Clock = AwakeClock;

  /// To be called again and again while the job runs. Whether it is to be ended: its ranks have said long ago that a
  /// host is out of reach. What a program says of another host that it calls counts for nothing.
  bool look(const JobReport& report, Clock::time_point now) {
    if (!report.failure.starts_with("cannot be reached:")) return false;
    if (!since_) since_ = now;
    return now - *since_ >= patience;
  }

  /// Ranks take some seconds to end their side, and a launcher that has noticed needs a few more.
  static constexpr std::chrono::seconds patience{10};

 private:
  std::optional<Clock::time_point> since_;
};

}  // namespace lockstep::run
