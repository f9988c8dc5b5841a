// Time, as loops that poll NCCL see it. Tests bring their own, which passes when they say so.
#pragma once

#include <chrono>
#include <memory>

namespace lockstep {

using Seconds = std::chrono::duration<double>;

/// The time of one thread's loops.
class PollClock {
 public:
  virtual ~PollClock() = default;

  /// Since some moment in the past. Never goes back.
  virtual Seconds now() = 0;

  /// Lets others have the processor before a loop, which has polled for `so_far`, polls again.
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

/// The beat of a thread that looks after something now and then.
class Ticker {
 public:
  virtual ~Ticker() = default;

  /// Blocks until the next beat, and says whether there is one: not after `stop`.
  virtual bool wait() = 0;

  /// From any thread: there is no beat from here on.
  virtual void stop() = 0;
};

/// The machine's own. Pauses without sleep at first: NCCL enqueues a collective on a thread of its own, which takes
/// microseconds, and a millisecond more in each would be felt. Then a millisecond at a time.
std::shared_ptr<PollClock> make_poll_clock();

std::shared_ptr<Ticker> make_ticker(Seconds beat);

}  // namespace lockstep
