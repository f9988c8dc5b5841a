// The same wishes in the words of each MPI's mpirun.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "cluster/launch.hpp"

namespace lockstep::run {

/// A command with its options.
using Words = std::vector<std::string>;

/// Of the MPI that this program found.
MpiKind own_mpi();

/// Whether a word of `command` is a program that is called as mpirun is: mpiexec, orterun and prterun, too.
bool names_mpirun(const Words& command);

/// The same of Slurm's srun, which is told hosts in its own words.
bool names_srun(const Words& command);

/// Adds to `command`, for a job on this host, that it leaves the ranks to themselves when one has died, long enough for
/// them to say which. MPICH's does not by itself; Open MPI's does. A `command` that names hosts stays as it is: on
/// several hosts MPICH's, told so, ends healthy jobs with 141 or 255 (5.0).
void let_ranks_speak(MpiKind mpi, Words& command);

/// Adds to `command` that MPI and mpirun use `network` ("10.0.0.0/24") between the hosts. MPICH's is told the interface
/// that this host has there: ConfigError if it has none. srun has no such option, but gives ranks its variables.
void use_network(MpiKind mpi, Words& command, const std::string& network);

/// Adds to `command` that mpirun binds no rank to a core: Open MPI's binds each to one, which several threads would
/// have to share. MPICH's and srun bind none by themselves. What `command` or a variable says of it stays.
void leave_unbound(MpiKind mpi, Words& command);

/// Adds to `command` that mpirun probes its connections. Without that, Open MPI's needs many minutes to notice that a
/// host is gone. MPICH's cannot be told.
void probe_connections(MpiKind mpi, Words& command);

/// The options of `command` for so many ranks on `hosts`.
Words words_of_hosts(const Words& command, std::span<const Host> hosts, int ranks);

/// The options for a job whose ranks run where the lines of `hostfile` say, one each, in this order.
Words words_of_placement(MpiKind mpi, int ranks, const std::string& hostfile);

}  // namespace lockstep::run
