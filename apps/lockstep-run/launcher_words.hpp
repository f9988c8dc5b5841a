// What lockstep-run asks of mpirun, as options of each MPI's.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/rank_label.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep::run {

/// A command with its options.
using Words = std::vector<std::string>;

/// Of the MPI that this program found.
MpiKind own_mpi();

/// Whether its mpiexec is hydra. Intel's is made from MPICH's.
constexpr bool has_hydra(MpiKind mpi) {
  return mpi == MpiKind::mpich || mpi == MpiKind::intel_mpi;
}

/// Whether a word of `command` is a program that is called as mpirun is: mpiexec, orterun and prterun, too.
bool names_mpirun(const Words& command);

/// The same of Slurm's srun, which is told hosts in its own words.
bool names_srun(const Words& command);

/// Tells the launcher of a job on this host to let the other ranks live on after one has died, long enough to say
/// which. Only MPICH's must be told: Intel's, told so, never ends those that wait for the dead one. A `command` that
/// names hosts stays as it is: on several hosts MPICH's, told so, ends healthy jobs with 141 or 255 (5.0).
void let_ranks_speak(MpiKind mpi, Words& command);

/// Adds to `command` that MPI and mpirun use `network` ("10.0.0.0/24") between the hosts. Hydra is told the interface
/// that this host has there: ConfigError if it has none. srun has no such option, but gives ranks its variables.
void use_network(MpiKind mpi, Words& command, const std::string& network);

/// Adds to `command` that mpirun binds no rank to a core: Open MPI's binds each to one, which several threads would
/// have to share. MPICH's binds none, Intel's each to its share of them; srun binds as Slurm is configured. What
/// `command` or a variable says of it stays.
void leave_unbound(MpiKind mpi, Words& command);

/// Adds to `command` that mpirun probes its connections. Without that, Open MPI's needs many minutes to notice that a
/// host is gone. Hydra cannot be told.
void probe_connections(MpiKind mpi, Words& command);

/// Whether it starts no rank before all hosts have answered.
bool starts_hosts_together(MpiKind mpi, const Words& command);

/// Whether ranks on `hosts` get no variables but those that -x names.
bool gives_no_variables(MpiKind mpi, const Words& command, std::span<const Host> hosts);

/// Those that `command` asks its launcher for.
RankLabels labels_of(const Words& command);

/// The option of `command`, or the variable, because of which what ranks write to stderr does not come out of the
/// launcher's: it goes to files, to windows or to stdout. Empty if there is none.
std::string what_hides_stderr(MpiKind mpi, const Words& command);

/// The options of srun for a rank on each of `hosts`, which may have names several times.
Words words_of_srun(const Words& hosts);

/// The options of `command` for so many ranks on `hosts`. Intel's mpiexec ignores slots: it gets a name for each rank.
Words words_of_hosts(MpiKind mpi, const Words& command, std::span<const Host> hosts, int ranks);

/// The options for a job whose ranks run where the lines of `hostfile` say, one each, in this order.
Words words_of_placement(MpiKind mpi, int ranks, const std::string& hostfile);

}  // namespace lockstep::run
