// What the parts of a judgement share: one look around.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/watch/judgement.hpp"

namespace lockstep {

/// One look, together with what is known from earlier ones. It must not outlive what it was made of.
class WatchView {
 public:
  using Seconds = WatchedJob::Seconds;
  using Peer = WatchState::Peer;
  using Process = Observation::Process;
  using Row = Observation::Row;
  using Snapshot = PhaseTable::Snapshot;

  // When mpirun is told to end, it tells every rank, one after the other. So a rank ended by SIGTERM is nobody's fault
  // until the others have heard nothing for this long; mpirun itself takes a second to react to a dead rank.
  static constexpr Seconds terminate_spread{0.3};
  // How long a rank that was told to end waits until the silence of a rank on another node means something. mpirun
  // kills it a second after telling it.
  static constexpr Seconds last_look{0.8};

  WatchView(const WatchedJob& job, const Observation& seen, WatchState& state);

 protected:
  const Row& row(int row) const { return seen_.rows[static_cast<std::size_t>(row)]; }
  std::string name(int row) const { return job_.names[row]; }
  Peer& peer(int row) const { return state_.peers[static_cast<std::size_t>(row)]; }
  int rows() const { return static_cast<int>(seen_.rows.size()); }
  bool is_elsewhere(int row) const { return !job_.nodes.same_node(row, job_.row); }
  /// Whether that rank's row comes here without a wish.
  bool is_near(int row) const {
    return !is_elsewhere(row) || job_.nodes.are_near(job_.nodes.node_of(row), job_.nodes.node_of(job_.row));
  }
  bool is_told() const { return seen_.since_told.has_value(); }
  std::uint64_t ticks_in(Seconds time) const { return static_cast<std::uint64_t>(time / job_.tick) + 1; }

  static PhaseTable::Met last_of(const Snapshot& row) { return {row.group, row.met_last()}; }

  /// Whether that rank is expected where this one met last.
  bool is_member(int row) const {
    return seen_.members.empty() || std::ranges::find(seen_.members, row) != seen_.members.end();
  }

  /// Whether that rank has shown no sign of life for so long that it may have stopped.
  bool is_silent(int row) const { return peer(row).life.unproven_ticks >= stall_ticks_ / 2; }

  /// Whether any rank of the node shows signs of life: the ranks of a node that is out of reach fall silent together.
  bool shows_life(int node) const;

  /// Whether the node may have a rank that runs: one that shows signs of life, or is mute, and may work alone.
  bool runs_on(int node) const;

  /// Several nodes find the same at about the same time. That of the lowest rank alive reports, and says so. How long
  /// those before this one have for that, if every node finds it;
  std::uint64_t ticks_until_turn() const;
  /// if it is about that rank, whose row those near it see sooner than others;
  std::uint64_t ticks_until_turn_for(int row) const;
  /// if that rank is waited for, so that only those find it that have a rank that waits.
  std::uint64_t ticks_until_turn_of_waiting_for(int row) const;

  const WatchedJob& job_;
  const Observation& seen_;
  WatchState& state_;
  std::uint64_t stall_ticks_;
  Seconds took_;  ///< since the look before, as far as it counts

 private:
  bool is_counted(int row) const;
  bool may_report(int node) const;
  template <class Finds>
  std::uint64_t turn_about(int row, Finds finds) const;
};

/// What this rank has come out of since the last look.
struct Met {
  bool any = false;     ///< an agreement or a sum that needed all ranks
  bool agreed = false;  ///< it was an agreement
};

/// Looks for a rank that is gone or stalls. Sets `failure` and `stall` of the judgement.
void look_for_failure(const WatchView& view, Met met, Judgement& judgement);

}  // namespace lockstep
