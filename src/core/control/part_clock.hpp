// Where time goes, part by part.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

namespace lockstep {

/// Assigns every moment to exactly one of `parts` parts, so that the parts add up to the whole. `Part` is an enum that
/// counts from 0. For one thread. Never allocates, and reads the clock once for each change of part.
template <class Part, std::size_t parts>
class PartClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Times {
    std::array<std::chrono::nanoseconds, parts> of_part{};

    std::chrono::nanoseconds of(Part part) const { return of_part[static_cast<std::size_t>(part)]; }
  };

  /// Starts in `first`. Tests pass another clock as `now`.
  explicit PartClock(Part first, std::function<Time()> now = std::chrono::steady_clock::now)
      : now_{std::move(now)}, since_{now_()}, current_{first} {}

  Part current() const { return current_; }

  /// How long ago the current part was entered, or the last lap ended, whichever is later.
  std::chrono::nanoseconds in_current() const { return now_() - since_; }

  /// Time counts for `part` from now on. Returns when that is.
  Time enter(Part part) {
    const Time now = now_();
    times_.of_part[static_cast<std::size_t>(std::exchange(current_, part))] += now - std::exchange(since_, now);
    return now;
  }

  /// Returns the times since the last lap, or since the start. Time counts for `next` from now on.
  Times lap(Part next) {
    enter(next);
    return std::exchange(times_, {});
  }

  /// Time counts for `part` during its lifetime, and then again for the part it interrupted.
  class During {
   public:
    During(PartClock& clock, Part part) : clock_{clock}, interrupted_{clock.current()} { clock_.enter(part); }
    During(const During&) = delete;
    During& operator=(const During&) = delete;
    ~During() { clock_.enter(interrupted_); }

   private:
    PartClock& clock_;
    Part interrupted_;
  };

 private:
  std::function<Time()> now_;
  Time since_;
  Part current_;
  Times times_{};
};

}  // namespace lockstep
