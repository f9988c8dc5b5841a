// Time, as loops that poll NCCL see it. Tests provide their own, which passes when they say so.
#pragma once

#include <chrono>
#include <memory>

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

/// How long a wait may take, counted from its construction.
class Patience {
 public:
  Patience(PollClock& clock, Seconds limit) : clock_{clock}, start_{clock.now()}, limit_{limit} {}

  Seconds limit() const { return limit_; }
  bool is_over() const { return clock_.now() - start_ >= limit_; }
  void pause() { clock_.pause(clock_.now() - start_); }

 private:
  PollClock& clock_;
  Seconds start_;
  Seconds limit_;
};

/// The beat of a thread that checks something periodically.
class Ticker {
 public:
  virtual ~Ticker() = default;

  /// Blocks until the next beat. False, without a beat, after `stop`.
  virtual bool wait() = 0;

  /// From any thread. No more beats from here on.
  virtual void stop() = 0;
};

/// The machine's own clock. At first it pauses without sleeping: NCCL enqueues a collective on a thread of its own,
/// which takes microseconds, and an extra millisecond in each would matter. After a millisecond it sleeps a millisecond
/// at a time.
std::shared_ptr<PollClock> make_poll_clock();

std::shared_ptr<Ticker> make_ticker(Seconds beat);

}  // namespace lockstep
