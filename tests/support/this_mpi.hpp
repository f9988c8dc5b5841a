// What jobs do otherwise under the launcher of this build's MPI than under Open MPI 4.1's. These are all the exceptions
// that tests make for another MPI.
#pragma once

#include <csignal>

#include "core/cluster/launch.hpp"

namespace lockstep::test {

inline constexpr MpiKind this_mpi = MpiKind::LOCKSTEP_TEST_MPI;

/// What mpirun's process is called. Open MPI 5's becomes another program. Intel's would be a script around this one.
inline constexpr const char* mpirun_process = this_mpi == MpiKind::open_mpi_5  ? "prterun"
                                              : this_mpi == MpiKind::intel_mpi ? "mpiexec.hydra"
                                                                               : "mpirun";

/// Whether mpirun has -q.
inline constexpr bool can_be_quiet = this_mpi == MpiKind::open_mpi_4;

inline constexpr bool of_hydra = this_mpi == MpiKind::mpich || this_mpi == MpiKind::intel_mpi;

/// Whether mpirun passes SIGUSR2 on to its ranks. Hydra ends.
inline constexpr bool passes_questions_on = !of_hydra;

/// How the lines begin that are lockstep's. Hydra adds some of its own when it is told to end.
inline constexpr const char* own_lines = of_hydra ? "lockstep" : "";

/// Fewer than the ranks of the smallest job have open when they are started. Hydra's begin with more.
inline constexpr const char* few_open_files = of_hydra ? "16" : "8";

/// 1. A launcher has its own codes for the end of a job: for a rank that a signal has ended,
constexpr int code_of_signal(int signal) {
  return this_mpi == MpiKind::mpich ? signal : 128 + signal;
}
/// which Intel's does not notice while another rank holds the streams of that one, so that the others end the job,
constexpr int code_of_killed(int signal = SIGKILL) {
  return this_mpi == MpiKind::intel_mpi ? 4 : code_of_signal(signal);
}
/// or with 5 while MPI ends,
inline constexpr int code_of_killed_at_end = this_mpi == MpiKind::intel_mpi ? 5 : code_of_killed();
/// for a rank that has left without ending MPI, of which hydra takes no notice, so that the others end the job,
inline constexpr int code_of_unfinished = of_hydra ? 4 : 1;
/// and if it is told to end. Hydra tells its ranks, and ends as they do.
constexpr int code_of_terminated_job(bool stopped_early) {
  if (!of_hydra) return 1;
  return stopped_early ? 75 : code_of_signal(SIGTERM);
}

/// 2. Hydra kills the others at once when a signal has ended a rank, or fails itself with 255. While MPI starts or
/// ends, of guests, and on several hosts, where it cannot be told to let the others speak, they may not have said by
/// then which rank it was, or may have seen another that it killed. Its own words come on stdout.
constexpr bool may_be_unnamed(int exit_code) {
  return of_hydra && (exit_code == code_of_signal(SIGKILL) || exit_code == code_of_signal(SIGTERM) || exit_code == 255);
}

/// 3. While MPI starts or ends, and where only its main thread may call it, no call of MPI's ends a job, and hydra does
/// not either when a rank has ended: on several hosts it waits, and each host says for itself what it knows.
inline constexpr bool ends_with_any_rank = !of_hydra;
/// So the others kill a rank that has stopped, and with MPICH's the number of that signal counts.
inline constexpr int code_of_stopped_without_mpi = this_mpi == MpiKind::mpich ? SIGKILL : 5;
/// While MPI starts, Intel's may see first that they have killed it, and then kills the others.
constexpr bool is_killed_with_stopped(int exit_code) {
  return this_mpi == MpiKind::intel_mpi && exit_code == code_of_signal(SIGKILL);
}
/// Whether a job ended with one of two codes, with which its ranks end. MPICH's ends with the bits of both. Under
/// Intel's the others end with 5, and that of the lowest rank counts.
constexpr bool ended_with_any(int exit_code, int one, int other) {
  return exit_code == one || exit_code == other || (this_mpi == MpiKind::mpich && exit_code == (one | other)) ||
         (this_mpi == MpiKind::intel_mpi && exit_code == 5);
}

/// 4. Open MPI 5's, once it is told to end or a rank has ended, passes on nothing that ranks write, and kills them half
/// a second later. Other hosts need longer to be sure that the only rank of a host is gone.
inline constexpr bool interrupted_job_may_be_silent = this_mpi == MpiKind::open_mpi_5;

/// 5. Open MPI 5's ends with 0 when it has lost a host, which it names, and has ended the ranks of the others, perhaps
/// before they could say so. lockstep-run knows that. Hydra waits for a host that is out of reach, though a rank says
/// which.
inline constexpr bool notices_lost_host = !of_hydra;
inline constexpr bool names_lost_host = this_mpi == MpiKind::open_mpi_5;

}  // namespace lockstep::test
