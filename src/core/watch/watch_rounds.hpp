// What a watchdog does in each tick: it shows that its rank lives, looks around, and judges.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

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
  using LookAt = std::function<void(int row, PhaseTable::Snapshot& now, Observation::Row& sight)>;

  /// What was seen last, for the caller to complete before it judges.
  Observation& seen() { return seen_; }

  /// Writes there what the table shows. Rows that are not near are read while they come, in the first look after this
  /// rank was told to end, and now and then at other times.
  void look_around(const LookAt& look_at);

  /// Judges what was seen. May wait: it asks a host whether it answers if the verdict depends on that. If this rank
  /// wishes for the rows of all, it says so. If there is no memory for that, some ranks may have been judged.
  Judgement judge();

  /// How long the rank of that row has shown no heartbeat, as far as it was judged.
  std::uint64_t silent_ticks(int row) const { return state_.peers[static_cast<std::size_t>(row)].life.silent_ticks; }

  /// Whether this rank has to report what it has found. Called once in each tick, from the next on.
  enum class Turn {
    waits,
    reports,  ///< unless another rank of its node does
    is_over,  ///< somebody has reported
  };
  Turn turn_to_report(const Finding& finding);

  /// Whether this rank tells of a stall now, which is then known to all nodes. Of circles that share a rank, one is
  /// told of. Called in each tick in which it is judged.
  bool tells_of(const Finding& stall);

  /// The same for a warning that heartbeats do not get through.
  bool warns();

 private:
  void send_around(Heartbeat heartbeat, bool told);
  bool looks_at_all();
  bool may_speak(std::uint64_t since);
  void look_at(int row, PhaseTable::Snapshot now, const LookAt& look_at);

  PhaseTable& table_;
  WatchedJob job_;
  Heartbeats* heartbeats_;
  std::uint64_t ticks_ = 0;
  std::uint64_t sent_around_at_ = 0;
  std::uint32_t line_sent_around_ = 0;
  std::uint64_t ticks_since_found_ = 0;

  /// Something that this rank has to say, from tick to tick.
  struct Intent {
    int about = 0;
    std::uint64_t begun = 0, last = 0;

    /// How long it has been there.
    std::uint64_t in(std::uint64_t tick, int now) {
      if (now != about || tick > last + 1) begun = tick;
      about = now;
      last = tick;
      return tick - begun;
    }
  };
  Intent to_tell_, to_warn_;
  PhaseTable::Speaker speaker_;        ///< as the last tick found it
  std::uint64_t speaker_changed_ = 0;  ///< the tick
  std::uint64_t looks_ = 0;            ///< since all rows were to be read
  bool was_told_ = false;
  std::vector<int> near_;  ///< rows of this node and of those near it, ascending
  Observation seen_;
  WatchState state_;
};

}  // namespace lockstep
