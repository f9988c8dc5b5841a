// How the processes of a job were started, as far as the environment tells.
#pragma once

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

/// What starts the processes of a job. `pmi` is the launcher of MPICH, and of the libraries that are made from it.
enum class LauncherKind : std::uint8_t { open_mpi, pmi, slurm };

/// The launcher that is a process of this name, as /proc/…/comm has it; nothing for other programs.
std::optional<LauncherKind> launcher_of_name(std::string_view process);

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

/// What is wrong with that, in one line. `library` is what MPI_Get_library_version says.
std::string describe_foreign_launch(const Launch& launch, int ranks, std::string_view library);

/// Whether MPI cannot learn of the launcher and would therefore end this process as it starts, with a page of text of
/// its own. True of Debian's Open MPI in a step of Slurm without PMIx; other builds may know other ways.
bool cannot_start(const ReadVariable& variable, std::string_view library);

}  // namespace lockstep
