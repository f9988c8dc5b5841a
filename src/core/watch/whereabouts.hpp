// What a watchdog does for somebody who wants to know where everyone is, and before its own rank stalls.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/awake_clock.hpp"
#include "core/base/side_thread.hpp"
#include "core/control/phase_table.hpp"
#include "core/watch/judgement.hpp"
#include "core/watch/kept_signals.hpp"
#include "core/watch/question_signal.hpp"
#include "core/watch/where_table.hpp"

namespace lockstep {

/// Used by the watchdog's thread alone. No call waits; the destructor waits up to half a second for each thread.
class Whereabouts {
 public:
  /// `table` and `job` must outlive it. With `none`, the program is somebody else's: no signal is heeded or sent.
  Whereabouts(PhaseTable& table, const WatchedJob& job, KeptSignals::Keep signals);

  /// Once in each look, with the rows in `seen`. Fills in what `judge_look` needs to know of questions and stacks, and
  /// notes how long each rank has been where it is.
  void look(Observation& seen);

  /// Does what was judged of what was seen.
  void act(const Judgement& judged, const Observation& seen);

 private:
  using Clock = AwakeClock;
  using Seconds = Observation::Seconds;
  /// Of the main thread, on its way to a file.
  struct TakenStack {
    std::uint64_t meetings = 0;  ///< of this rank, see PhaseTable
    Clock::time_point asked_at;
    std::shared_ptr<std::atomic<bool>> kept = std::make_shared<std::atomic<bool>>(false);
    bool is_asked = true;  ///< and has not answered
  };

  void measure_memory();
  Stay::Time now() const;
  void tell(const Observation& seen);
  void go_on_telling();
  void take_stack();
  void go_on_with_stack();
  void keep_stack(const std::optional<RawStack>& stack, const std::string& why_none);

  PhaseTable& table_;
  const WatchedJob& job_;
  bool heeds_signals_;
  std::vector<Stay> stays_;  ///< by row
  Seconds watched_{0};       ///< how long all looks have taken
  std::optional<Clock::time_point> measured_at_;
  std::optional<TakenStack> taken_;
  std::optional<std::string> to_print_, to_keep_;  ///< the last table, until a thread has begun with it
  SideThread printer_;
  SideThread table_keeper_;
  SideThread stack_keeper_;
};

}  // namespace lockstep
