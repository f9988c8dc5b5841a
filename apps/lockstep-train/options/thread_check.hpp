// Whether the threads asked for have cores.
#pragma once

#include <string>

namespace lockstep {

struct Cores {
  int of_node;
  int of_rank;           ///< that this process may use
  std::string bound_by;  ///< "mpirun" or "OMP_PROC_BIND=true"; empty if neither has taken cores away
};

/// The cores of this process.
Cores find_cores();

/// A warning if ranks of several threads have to share cores; empty otherwise. One thread for each of many ranks may
/// be what the user wants: mpirun asks for --oversubscribe.
std::string thread_warning(int threads, int ranks_of_node, const Cores& cores);

}  // namespace lockstep
