#include "apps/lockstep-train/options/thread_check.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "core/cluster/counted.hpp"
#include "job/runtime/inherited_state.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {

Cores find_cores() {
  const int of_node = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  const auto of = [of_node](pid_t process) {
    cpu_set_t bound;
    return ::sched_getaffinity(process, sizeof bound, &bound) == 0 ? CPU_COUNT(&bound) : of_node;
  };
  Cores cores{of_node, of(0), openmp_binding()};
  // mpirun and its daemons use all cores that they were given.
  const bool launched = nearest_launcher().has_value();
  if (cores.bound_by.empty() && launched && of(::getppid()) > cores.of_rank) cores.bound_by = "mpirun";
  return cores;
}

std::string thread_warning(int threads, int ranks_of_node, const Cores& cores) {
  if (threads < 2) return {};
  if (threads > cores.of_node / ranks_of_node)
    return fmt::format("--threads {}: {} on a node of {}; expected at most as many threads as cores", threads,
                       ranks_of_node == 1 ? "a rank" : counted(ranks_of_node, "rank"), counted(cores.of_node, "core"));
  if (threads > cores.of_rank && cores.bound_by.empty())
    return fmt::format(
        "--threads {}: what started the job (taskset, a control group, a scheduler) left it {}; expected at "
        "most as many threads as cores",
        threads, counted(cores.of_rank, "core"));
  if (threads > cores.of_rank)
    return fmt::format("--threads {}: {} bound the rank to {}; expected {}", threads, cores.bound_by,
                       counted(cores.of_rank, "core"),
                       cores.bound_by == "mpirun" ? "mpirun --bind-to none" : "OMP_PROC_BIND=false");
  return {};
}

}  // namespace lockstep
