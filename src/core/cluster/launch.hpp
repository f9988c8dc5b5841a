// How the processes of a job were started, as far as the environment tells.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Reads an environment variable; null if it is not set.
using ReadVariable = std::function<const char*(const char* name)>;

/// A warning for a job of one rank, though Slurm was asked for several tasks: without MPI's launcher each of them
/// trains alone. Empty otherwise, and for all but the first of them. To be called before MPI starts, which sets the
/// variables of its launcher even without one.
std::string launch_warning(const ReadVariable& variable);

/// An MPI, as far as jobs under it differ.
enum class MpiKind : std::uint8_t { open_mpi_4, open_mpi_5, mpich, intel_mpi, other };

constexpr bool is_open_mpi(MpiKind mpi) {
  return mpi == MpiKind::open_mpi_4 || mpi == MpiKind::open_mpi_5;
}

/// By what MPI_Get_library_version says.
MpiKind mpi_kind_of(std::string_view library);

/// What starts the processes of a job. `pmi` is the launcher of MPICH, and of the libraries that are made from it.
enum class LauncherKind : std::uint8_t { open_mpi, pmi, slurm };

/// The variables in which a launcher tells a process its place. Open MPI's and MPICH's set all of theirs.
struct LauncherVariables {
  LauncherKind kind;
  const char* processes;       ///< of the job
  const char* rank;            ///< of this process among them
  const char* processes_here;  ///< of the job, on this node: their number, or of Slurm their ranks as "0,1"
  const char* rank_of_mpi;     ///< the same as `rank`, but only set for a process that MPI finds to be of this launcher
};

/// A job that is started inside of another's is likelier to be of an earlier kind.
inline constexpr std::array launcher_variables{
    LauncherVariables{LauncherKind::open_mpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                      "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
    LauncherVariables{LauncherKind::pmi, "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "PMI_RANK"},
    LauncherVariables{LauncherKind::slurm, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_GTIDS", "PMIX_RANK"},
};

/// The launcher that is a process of this name, as /proc/…/comm has it; nothing for other programs.
std::optional<LauncherKind> launcher_of_name(std::string_view process);

/// What the end of a launcher's process means to the ranks that it has started.
enum class LauncherPart : std::uint8_t {
  job,    ///< the end of the job: mpirun
  node,   ///< the end of the job's ranks on this node: a daemon of mpirun's
  other,  ///< the end of other jobs too, or nothing
};

/// Of the parent of this process, by its name. `variable` reads the environment of this process.
LauncherPart part_of_launcher(std::string_view parent, const ReadVariable& variable);

/// How long the launcher waits after the end of a process until it tells the others to end.
std::chrono::milliseconds launcher_waits(const ReadVariable& variable);

/// What the processes that a launcher has started as one job have in common, and those of no other job that the same
/// parent has started; empty without a launcher.
std::string_view name_of_job(const ReadVariable& variable);

/// The place in its job that a launcher gave a process.
struct LaunchPlace {
  int rank = 0;
  int processes = 0;       ///< of the job; 0 if the launcher does not say
  int processes_here = 0;  ///< of the job, on this node; 0 if the launcher does not say

  friend bool operator==(const LaunchPlace&, const LaunchPlace&) = default;
};

/// Nothing for a process that no launcher has started. `nearest` is its launcher, if it is known by its name. Only that
/// one's variables count if there are any: a job inherits those of the one in whose shell it was started.
std::optional<LaunchPlace> find_place(const ReadVariable& variable, std::optional<LauncherKind> nearest);

/// What a launcher told this process.
struct Launch {
  LauncherKind kind = LauncherKind::open_mpi;
  int processes = 1;              ///< that it started as one job
  bool is_first = true;           ///< rank 0 of them, or of no known rank
  std::string variable_of_first;  ///< "PMI_RANK=0", in the environment of that rank

  friend bool operator==(const Launch&, const Launch&) = default;
};

/// The launcher of this process, if it started more processes than the `ranks` of MPI_COMM_WORLD: MPI did not learn of
/// the launcher, so each process is a job of its own. A job inherits the variables of the one in whose shell it was
/// started, and only those of its own launcher count. That is `nearest`, the first one among the ancestors of this
/// process; if none is known, or it sets no variables, Open MPI's before PMI's before Slurm's.
std::optional<Launch> find_foreign_launch(const ReadVariable& variable, std::optional<LauncherKind> nearest, int ranks);

/// What is wrong with that, in one line. `library` is what MPI_Get_library_version says. `ranks` is 0 where MPI cannot
/// start.
std::string describe_foreign_launch(const Launch& launch, int ranks, std::string_view library);

/// Whether MPI cannot learn of the launcher and would therefore end this process as it starts, with a page of text of
/// its own. True of Debian's Open MPI in a step of Slurm without PMIx; other builds may know other ways.
bool cannot_start(const ReadVariable& variable, std::string_view library);

}  // namespace lockstep
