#include "cluster/launch.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "base/excerpt.hpp"

namespace lockstep {

std::string launch_warning(const ReadVariable& variable) {
  const char* const tasks = variable("SLURM_NTASKS");
  const char* const number = variable("SLURM_PROCID");
  constexpr std::array launchers{"OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK"};
  if (!tasks || std::atoi(tasks) < 2 || (number && std::string_view{number} != "0") ||
      std::ranges::any_of(launchers, variable))
    return {};
  return fmt::format(
      "SLURM_NTASKS is {}, but this process is a job of 1 rank, because MPI's launcher did not start it; expected "
      "mpirun "
      "or srun --mpi=pmix",
      excerpt(tasks));
}

}  // namespace lockstep
