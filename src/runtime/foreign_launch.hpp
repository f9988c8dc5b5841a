// A launcher of another MPI than this program's. It starts processes that do not know of each other.
#pragma once

namespace lockstep {

/// COLL, after MPI has started. If the launcher started more processes as one job than MPI_COMM_WORLD has, ends this
/// process with ExitCode::user_input, and one of the launcher's processes prints a line. Each would take itself for
/// rank 0: train alone, and write the checkpoints of all.
void refuse_foreign_launch();

}  // namespace lockstep
