#include "apps/lockstep-train/options/thread_check.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "cluster/counted.hpp"

namespace lockstep {

Cores find_cores() {
  const int of_node = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t bound;
  const bool known = ::sched_getaffinity(0, sizeof bound, &bound) == 0;
  return {of_node, known ? CPU_COUNT(&bound) : of_node};
}

std::string thread_warning(int threads, int ranks_of_node, const Cores& cores) {
  if (threads < 2) return {};
  if (threads > cores.of_node / ranks_of_node)
    return fmt::format("--threads {}: {} on a node of {}; expected at most as many threads as cores", threads,
                       ranks_of_node == 1 ? "a rank" : counted(ranks_of_node, "rank"), counted(cores.of_node, "core"));
  if (threads > cores.of_rank)
    return fmt::format("--threads {}: mpirun bound the rank to {}; expected mpirun --bind-to none", threads,
                       counted(cores.of_rank, "core"));
  return {};
}

}  // namespace lockstep
