// The process that started this rank: mpirun, or its daemon on another node.
#pragma once

#include <lockstep/base/error.hpp>

#include "control/watchdog.hpp"

namespace lockstep {

/// Whether a daemon of mpirun's has started this process, on another node than mpirun's.
bool is_started_by_daemon();

/// Ends what can be ended from this side of a broken network: the ranks of this node and their launcher, which would
/// wait for the other side for minutes. Does not return. `place` is this rank's position among those of its node.
[[noreturn]] void end_this_side(Error::ExitCode code, Reach reach, int place);

/// Ends only this process, whose launcher is gone, and removes what MPI would have cleaned up.
[[noreturn]] void end_without_launcher(Error::ExitCode code);

}  // namespace lockstep
