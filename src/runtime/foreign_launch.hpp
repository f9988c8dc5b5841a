// A launcher of another MPI than this program's. It starts processes that do not know of each other.
#pragma once

namespace lockstep {

/// COLL over the processes that the launcher started. If it started more as one job than MPI_COMM_WORLD has, each would
/// take itself for rank 0. Then ends this process with Error::ExitCode::user_input, and one of them prints a line.
/// Called before MPI starts, does so only if MPI would fail to start.
void refuse_foreign_launch();

}  // namespace lockstep
