// How long a rank was busy with what, and how long it waited for the others.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/parts.hpp"
#include "core/control/job_time.hpp"
#include "core/control/part_clock.hpp"
#include "core/control/run_delay.hpp"
#include "core/trace/ring.hpp"

namespace lockstep {

/// Assigns every moment of one thread to one part of the rank's own work, or to waiting for the others: from its
/// arrival at an agreement or a sum until all ranks leave it. So what a rank waits for because of others is in no part
/// of its own, and ranks can be compared without comparing their clocks.
///
/// Code says what it does by scopes, which reach the clock of their thread, and do nothing on a thread without one:
///
///   const BusyClock::During writing{BusyClock::Part::checkpoint};
///
/// Only the main thread of a rank has one, which waits for the others where the rank does. A GPU works while the host
/// goes on, so its time counts where the host waits for it: for the part that the host is in if the GPU has work of its
/// own, and else as waiting. LOCAL; no message, no allocation.
class LOCKSTEP_PARTS_API BusyClock {
 public:
  enum class Part : std::uint8_t {
    data,        ///< loading a batch for a step, or waiting for the thread that loads it
    forward,     ///< up to and including the loss
    backward,    ///< with the sum over the rank's shards, and the end of a GPU's passes
    optimizer,   ///< the update of weights and moving averages, and the norm for clipping
    checkpoint,  ///< what a save takes on this thread
    evaluation,  ///< a pass over the test set, with its data
    other,       ///< the rest, such as observers
  };
  static constexpr std::size_t parts = 7;
  using Time = std::chrono::steady_clock::time_point;

  /// Time as the ranks see it: real, without pauses of the whole job, or that of a simulation.
  struct TimeSource {
    std::function<Time()> now = JobTime::now;
    std::function<void(std::chrono::nanoseconds)> sleep;  ///< if empty, the thread sleeps
    std::function<std::chrono::nanoseconds()> run_delay = lockstep::run_delay;
  };

  struct Times {
    std::array<std::chrono::nanoseconds, parts> busy{};  ///< by part
    std::chrono::nanoseconds waiting{};
    std::chrono::nanoseconds queued{};  ///< of all these, ready to run without a processor

    std::chrono::nanoseconds all_busy() const;
    std::chrono::nanoseconds elapsed() const { return all_busy() + waiting; }
    Times& operator+=(const Times& other);
    bool operator==(const Times&) const = default;
  };

  /// Becomes the clock of this thread until it is destroyed, and starts in `other`. They nest like blocks.
  explicit BusyClock(TimeSource source);
  BusyClock(const BusyClock&) = delete;
  BusyClock& operator=(const BusyClock&) = delete;
  ~BusyClock();

  /// The times since the last lap, or since the start.
  Times lap();

  /// Makes work in `slow` parts take `factor` times as long, by sleeping at the end of each. For tests.
  void slow_down(std::vector<Part> slow, double factor);

  /// Time of this thread counts for `part` from now on.
  static void enter(Part part);

  /// Time of this thread counts for `part` during its lifetime, and then again for what it interrupted.
  class [[nodiscard]] During {
   public:
    explicit During(Part part);
    During(const During&) = delete;
    During& operator=(const During&) = delete;
    ~During();

   private:
    BusyClock* clock_;
    Part interrupted_;
  };

  /// This thread waits for the others during its lifetime. They nest like blocks.
  class [[nodiscard]] Waiting {
   public:
    Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting();

   private:
    BusyClock* clock_;
  };

  /// Whom this thread waits for while it waits for its GPU, whatever it was about to wait for: the GPU's own work,
  /// which is this rank's, or the GPUs of the others. `none` ends that.
  enum class DeviceWait : std::uint8_t { none, own, others };
  static void wait_for_device(DeviceWait wait);

  /// As long as it lives, this thread has no clock, and its time counts for the part that it is in. To find out what a
  /// clock costs: one at a time, outside of the scopes above.
  class [[nodiscard]] Off {
   public:
    Off();
    Off(const Off&) = delete;
    Off& operator=(const Off&) = delete;
    ~Off();
  };

 private:
  /// Past the parts.
  static constexpr Part waiting{parts};

  void change();
  void drag();

  TimeSource source_;
  std::chrono::nanoseconds run_delay_;  ///< when the lap began
  PartClock<Part, parts + 1> clock_;
  Part own_ = Part::other;  ///< what the rank does when it does not wait
  int waits_ = 0;           ///< how deep
  DeviceWait device_ = DeviceWait::none;
  std::vector<Part> slow_;
  double factor_ = 1;
  std::chrono::nanoseconds owed_{};  ///< sleep; negative if the last one was too long
  trace::Ring::Open span_;           ///< of the part or the wait, if there is a trace
  BusyClock* outer_;
};

/// "data", "forward".
LOCKSTEP_PARTS_API std::string_view name_of(BusyClock::Part part);

/// The part of that name; empty if there is none.
LOCKSTEP_PARTS_API std::optional<BusyClock::Part> part_named(std::string_view name);

}  // namespace lockstep
