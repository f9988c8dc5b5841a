// Time, as loops that poll a device see it. Tests provide their own, which passes when they say so.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/counted_time.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

using Seconds = std::chrono::duration<double>;

/// The clock of one thread's polling loops.
class PollClock {
 public:
  virtual ~PollClock() = default;

  /// Time since some moment in the past. Never goes back.
  virtual Seconds now() = 0;

  /// Gives the processor to others before a loop that has polled for `so_far` polls again.
  virtual void pause(Seconds so_far) = 0;
};

/// How long a wait may take, counted from its construction. Of a longer time between two looks, in which the process
/// was stopped, half a second counts. If there is a `progress`, and it has changed since the last limit when the time
/// is up, the time begins again.
class Patience {
 public:
  Patience(PollClock& clock, Seconds limit, std::function<std::uint64_t()> progress = {})
      : clock_{clock},
        start_{clock.now()},
        waited_{start_, Seconds{0.5}},
        limit_{limit},
        progress_{std::move(progress)} {}

  Seconds limit() const { return limit_; }
  bool is_over() {
    if (progress_ && !seen_) seen_ = progress_();
    if (waited_.look(clock_.now()) < limit_) return false;
    if (!progress_) return true;
    const auto before = std::exchange(seen_, progress_());
    if (seen_ == before) return true;
    waited_.begin_again();
    return false;
  }
  void pause() { clock_.pause(clock_.now() - start_); }

 private:
  PollClock& clock_;
  Seconds start_;
  CountedTime waited_;
  Seconds limit_;
  std::function<std::uint64_t()> progress_;
  std::optional<std::uint64_t> seen_;  ///< at the first look, or at the last limit
};

/// The machine's own clock. A pause does not sleep in the first two milliseconds: what GPUs do takes microseconds.
/// Later it sleeps for a fiftieth of the time so far, and for a millisecond at most.
LOCKSTEP_PARTS_API std::shared_ptr<PollClock> make_poll_clock();

}  // namespace lockstep
