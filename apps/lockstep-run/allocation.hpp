// What a scheduler gave the job in which lockstep-run was started. Read for the size of the job, the names of its hosts
// and checks. The launcher of MPI places the ranks; it is told the hosts if it does not know the scheduler.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep::run {

struct Allocation {
  std::string source;              ///< "Slurm job 12"
  std::vector<Host> hosts;         ///< with as many slots as the scheduler was asked for ranks
  bool is_known_to_mpirun = true;  ///< mpirun finds the hosts itself
};

/// Of Slurm (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE), PBS (PBS_NODEFILE) or the MPI operator of Kubernetes (its
/// hostfile, OMPI_MCA_orte_default_hostfile), in this order; nothing outside of them. ConfigError, naming the variable,
/// if what it says cannot be read.
std::optional<Allocation> read_allocation(const ReadVariable& variable);

/// ConfigError unless each of `hosts` is one of the allocation's, with no more slots.
void require_in_allocation(std::span<const Host> hosts, const Allocation& allocation);

/// The hosts of a list as Slurm shortens it: "a[1-3,07],rack[0-1]n[0-1],b". ConfigError, which begins with `source`,
/// for anything else, and for more than a million hosts.
std::vector<std::string> expand_hosts(std::string_view list, const std::string& source);

/// The numbers of a list as Slurm shortens it: "2(x10),5". ConfigError as expand_hosts.
std::vector<int> expand_counts(std::string_view list, const std::string& source);

}  // namespace lockstep::run
