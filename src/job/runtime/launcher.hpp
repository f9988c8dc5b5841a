// The process that started this rank: mpirun, or its daemon on another node.
#pragma once

#include <lockstep/core/base/error.hpp>

#include "core/watch/watchdog.hpp"

namespace lockstep {

/// Whether the parent is a launcher's daemon, such as orted or hydra's proxy.
bool is_started_by_daemon();

/// Ends what can be ended from this side of a broken network: the ranks of this node and their launcher, which would
/// wait for the other side for minutes. Does not return. `place` is this rank's position among those of its node.
[[noreturn]] void end_this_side(Error::ExitCode code, Reach reach, int place);

/// Removes the names that MPICH gives its shared memory, to be called once all ranks of this node have mapped it. MPICH
/// would at its end, and of a job that is killed nobody does. Open MPI's mpirun removes what its jobs leave.
void remove_names_of_mpich();

/// To be called between the last line and MPI_Abort. hydra, MPICH's launcher, then drops what it has not read yet.
void let_launcher_read();

/// COLL over the ranks of a node, once MPI has started; for hydra, MPICH's launcher, and nothing under others. Hydra
/// ends a job as soon as it finds the output of a rank and its connection to it closed, before the others can say whose
/// they were. So each rank keeps those of the rank before it open, to its end, and hydra finds the dead rank when the
/// next one writes its line: the ranks must watch each other. Blocks for up to two seconds, if a rank does not come.
void keep_streams_of_neighbour();

/// COLL over the processes that the launcher started. If it started more as one job than MPI_COMM_WORLD has, each would
/// take itself for rank 0. Then ends this process with Error::ExitCode::user_input, and one of them prints a line.
/// Called before MPI starts, does so only if MPI would fail to start.
void refuse_foreign_launch();

/// Ends only this process, whose launcher is gone, and removes what MPI would have cleaned up.
[[noreturn]] void end_without_launcher(Error::ExitCode code);

}  // namespace lockstep
