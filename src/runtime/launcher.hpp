// The process that started this rank: mpirun, or its daemon on another node.
#pragma once

#include <lockstep/base/error.hpp>

#include "control/watchdog.hpp"

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

/// Ends only this process, whose launcher is gone, and removes what MPI would have cleaned up.
[[noreturn]] void end_without_launcher(Error::ExitCode code);

}  // namespace lockstep
