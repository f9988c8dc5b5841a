// The other ranks that the same launcher started on this node, as the system shows them: for when there is no phase
// table, while a job starts and ends.
#pragma once

#include <optional>
#include <set>
#include <vector>

namespace lockstep {

/// The rank that the launcher gave this process; nothing where no launcher did.
std::optional<int> rank_from_launcher();

/// One look at the processes of the same launcher, this one among them.
struct SiblingView {
  struct Process {
    int rank;
    bool stopped;  ///< by a signal
  };
  std::vector<Process> processes;  ///< by rank
  int nameless = 0;                ///< processes that have just begun or ended, so that their rank does not show

  /// Those of `ranks` that are not there, by rank.
  std::vector<int> missing(const std::set<int>& ranks) const;
};

SiblingView look_at_siblings();

/// The job's ranks where they are all on this node; none where there are others elsewhere, or the launcher does not
/// say.
std::set<int> ranks_if_all_are_here();

/// How many ranks the launcher has started on this node; 0 where it does not say.
int ranks_on_this_node();

}  // namespace lockstep
