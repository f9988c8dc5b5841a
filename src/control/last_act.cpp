// What a rank does that was told to end.
#include <utility>

#include "control/watch_view.hpp"

namespace lockstep {
namespace {

class Ending : WatchView {
 public:
  explicit Ending(const WatchView& view) : WatchView{view} {}

  LastAct last_act() const {
    const Seconds since = *seen_.since_told;
    const bool may_save = job_.saves_at_end && since <= time_to_save;
    if (seen_.reported) return may_save ? LastAct::none : LastAct::end;
    if (was_interrupted()) {
      if (!may_save) return LastAct::say_and_end;
      return std::exchange(state_.asked_to_save, true) ? LastAct::none : LastAct::save;
    }
    // The others wait for the one that says so: as soon as one of them has ended, mpirun kills the rest.
    const bool waits = job_.between_nodes() || job_.row == 0 || job_.saves_at_end;
    return since > (waits ? last_look : terminate_spread) ? LastAct::end : LastAct::none;
  }

 private:
  // How long the ranks have to save what they have made after they were told to end. There must be time left for a
  // line.
  static constexpr Seconds time_to_save{0.6};
  // When mpirun is interrupted, it ends the ranks of its own node first and tells those of other nodes two seconds
  // later. How long one that was told waits until it takes their heartbeats for that. A death would show by then.
  static constexpr Seconds node_spread{0.6};

  /// Whether mpirun was interrupted, or told to end itself, and this rank is to say so: the lowest that was told.
  bool was_interrupted() const {
    bool all_told = true;
    for (int row = 0; row < rows(); ++row) {
      const Snapshot& seen = this->row(row);
      if (seen.phase == Phase::leaving) return false;
      if (row == job_.row) continue;
      // A rank of another node that has not beaten since may have been gone before.
      if (is_elsewhere(row) ? !peer(row).has_beaten_since_told : !seen.terminated) return false;
      if (seen.terminated && row < job_.row) return false;
      all_told = all_told && seen.terminated;
    }
    return all_told || (seen_.told_by_parent && *seen_.since_told > node_spread);
  }
};

}  // namespace

LastAct last_act(const WatchView& view) {
  return Ending{view}.last_act();
}

}  // namespace lockstep
