// The launcher and the ranks that it started on this node, as the system shows them while there is no phase table.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "core/cluster/launch.hpp"

namespace lockstep {

/// The rank that the launcher gave this process; empty without a launcher.
std::optional<int> rank_from_launcher();

/// One look at the launcher's processes, this one included.
struct SiblingView {
  struct Process {
    int rank;
    bool stopped;  ///< by a signal
    pid_t id;
  };
  std::vector<Process> processes;  ///< by rank
  int nameless = 0;                ///< processes that have just begun or ended, so that their rank is not visible
  bool is_whole = true;            ///< false if this process lacked what it takes to see them all

  /// Those of `ranks` that are known to be missing, by rank.
  std::vector<int> missing(const std::set<int>& ranks) const;
};

enum class Look : std::uint8_t {
  at_all,
  for_others,  ///< than were seen before by this thread. Those are not looked at, and said to run
};
SiblingView look_at_siblings(Look look = Look::at_all);

/// The name of a thread that each process has which makes a runtime: other processes can see it.
inline constexpr const char* thread_of_runtime = "lockstep-watch";

/// How far a process has come into the job, as others see it.
enum class Joined : std::uint8_t {
  unknown,
  nothing,    ///< it runs, and has not started MPI
  mpi,        ///< it has started MPI, or is about to, and makes no runtime
  maybe_mpi,  ///< it makes no runtime; whether it has started MPI is not visible
  runtime,
};
Joined how_far(pid_t process);

/// The program that the process runs, as the system calls it; empty if that is not visible.
std::string program_of(pid_t process);

enum class SiblingsToEnd : std::uint8_t {
  all,
  stopped,  ///< by a signal: those that cannot end themselves
};

/// Ends other ranks of this node, if the end of this process without MPI_Abort does not make the launcher do so, as
/// with MPICH's: a stopped rank would stay for ever. srun's options decide, so of its ranks only stopped ones are
/// ended.
void end_siblings_like_launcher(SiblingsToEnd which);

/// Whether a process that the same parent started has this in its environment: "NAME=value".
bool has_sibling_with(const std::string& variable);

/// The first launcher among this process's parent, the parent's parent, and so on, as far as they are visible. Looked
/// up once: a process that loses its parent keeps its launcher.
std::optional<LauncherKind> nearest_launcher();

/// The job's ranks if all of them are on this node; empty if some are elsewhere or the launcher does not say.
std::set<int> ranks_if_all_are_here();

/// How many ranks the launcher has started on this node; 0 if it does not say.
int ranks_on_this_node();

}  // namespace lockstep
