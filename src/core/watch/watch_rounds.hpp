// What a watchdog does in each tick: it shows that its rank lives, looks around, and judges.
#pragma once

#include <cstdint>
#include <functional>

#include "core/control/phase_table.hpp"
#include "core/watch/heartbeats.hpp"
#include "core/watch/judgement.hpp"

namespace lockstep {

/// Knows no thread, no clock and no process, so a simulation has one for each of its ranks.
class WatchRounds {
 public:
  /// `table` and `heartbeats` must outlive it; null if the job has none.
  WatchRounds(PhaseTable& table, WatchedJob job, Heartbeats* heartbeats);
  WatchRounds(const WatchRounds&) = delete;

  const WatchedJob& job() const { return job_; }

  enum class Heartbeat {
    when_due,
    now,
    last,  ///< of this rank; to all nodes, if they listen
  };

  /// A tick is over. `told`: this rank was told to end.
  void beat(Heartbeat heartbeat, bool told = false);

  /// Whether rows of other nodes are passed on, and rows of all come.
  bool is_passing() const { return heartbeats_ && state_.wish_ticks.has_value(); }

  /// Completes what is seen of a rank by what the system knows of its process.
  using LookAt = std::function<void(int row, Observation::Row& sight)>;

  /// Writes what the table shows, for the caller to complete before it judges.
  void look_around(Observation& seen, const LookAt& look_at) const;

  /// Asks hosts where that decides, which waits. Their answers are added to what is seen.
  Judgement judge(Observation& seen) const;

  /// How long the rank of that row has shown no heartbeat, as far as it was judged.
  std::uint64_t silent_ticks(int row) const { return state_.peers[static_cast<std::size_t>(row)].life.silent_ticks; }

  /// What was judged holds. If this rank wishes for the rows of all, it says so.
  void keep(Judgement& judged);

  /// Whether this rank has to report what it has found. Called once in each tick, from the next on.
  enum class Turn {
    waits,
    reports,  ///< unless another rank of its node does
    is_over,  ///< somebody has reported
  };
  Turn turn_to_report(const Finding& finding);

  /// Whether this rank is the first of its node to speak of a stall, which is then known to all nodes. Of circles that
  /// share a rank, one is told of.
  bool is_first_to_tell(const Finding& stall);

 private:
  void send_around(Heartbeat heartbeat, bool told);
  void look_at(int row, Observation::Row& sight, const LookAt& look_at) const;

  PhaseTable& table_;
  WatchedJob job_;
  Heartbeats* heartbeats_;
  std::uint64_t ticks_ = 0;
  std::uint64_t sent_around_at_ = 0;
  std::uint32_t line_sent_around_ = 0;
  std::uint64_t ticks_since_found_ = 0;
  WatchState state_;
};

}  // namespace lockstep
