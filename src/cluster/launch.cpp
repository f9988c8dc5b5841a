#include "cluster/launch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/excerpt.hpp"

namespace lockstep {
namespace {

/// The variables of each kind. A job that is started inside of another's is likelier to be of an earlier kind.
struct LauncherVariables {
  LauncherKind kind;
  const char* processes;
  const char* rank;
};
constexpr std::array launcher_variables{
    LauncherVariables{LauncherKind::open_mpi, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    LauncherVariables{LauncherKind::pmi, "PMI_SIZE", "PMI_RANK"},
    LauncherVariables{LauncherKind::slurm, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
};

std::optional<int> whole_number(const char* text) {
  if (!text) return std::nullopt;
  const std::string_view digits{text};
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc{} && end == digits.data() + digits.size() ? std::optional{number} : std::nullopt;
}

std::optional<Launch> read_launch(const ReadVariable& variable, const LauncherVariables& names) {
  const auto processes = whole_number(variable(names.processes));
  if (!processes) return std::nullopt;
  // In a shell on a terminal, of which srun starts one, whatever the number of tasks.
  if (names.kind == LauncherKind::slurm && variable("SLURM_PTY_PORT")) return std::nullopt;
  // A rank that is not known speaks too: several lines are better than none.
  return Launch{.kind = names.kind,
                .processes = *processes,
                .is_first = whole_number(variable(names.rank)).value_or(0) == 0,
                .variable_of_first = fmt::format("{}=0", names.rank)};
}

const char* program_of(LauncherKind kind) {
  switch (kind) {
    case LauncherKind::open_mpi: return "mpirun of Open MPI";
    case LauncherKind::pmi: return "mpiexec of MPICH, or another PMI launcher,";
    case LauncherKind::slurm: return "srun";
  }
  return "?";
}

/// "Open MPI v4.1.4, package: …" is "Open MPI v4.1.4", and "MPICH Version:      4.0.2" is "MPICH 4.0.2".
std::string short_version(std::string_view library) {
  std::string text;
  for (const char each : library.substr(0, library.find_first_of(",\r\n"))) {
    if (each != ' ' && each != '\t')
      text += each;
    else if (!text.empty() && text.back() != ' ')
      text += ' ';
  }
  while (text.ends_with(' ')) text.pop_back();
  if (const auto word = text.find(" Version:"); word != std::string::npos) text.erase(word, 9);
  return text;
}

}  // namespace

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

std::optional<LauncherKind> launcher_of_name(std::string_view process) {
  if (process == "slurmstepd") return LauncherKind::slurm;
  constexpr std::array of_pmi{"hydra_pmi_proxy", "mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"};
  if (std::ranges::find(of_pmi, process) != of_pmi.end()) return LauncherKind::pmi;
  // MPICH's are called mpirun and mpiexec too, but its ranks are children of its proxies.
  constexpr std::array of_open_mpi{"mpirun",  "mpiexec", "orterun", "mpirun.openmpi", "mpiexec.openmpi", "orted",
                                   "prterun", "prted",   "prte"};
  if (std::ranges::find(of_open_mpi, process) != of_open_mpi.end()) return LauncherKind::open_mpi;
  return std::nullopt;
}

std::optional<Launch> find_foreign_launch(const ReadVariable& variable, std::optional<LauncherKind> nearest,
                                          int ranks) {
  std::optional<Launch> own;
  for (const LauncherVariables& each : launcher_variables) {
    auto launch = read_launch(variable, each);
    if (!launch) continue;
    // Ranks that know of each other have met their launcher, whatever other variables say.
    if (ranks > 1 && launch->processes == ranks) return std::nullopt;
    if (!own || each.kind == nearest) own = std::move(launch);
  }
  return own && own->processes > ranks ? own : std::nullopt;
}

std::string describe_foreign_launch(const Launch& launch, int ranks, std::string_view library) {
  const std::string own = short_version(library);
  return fmt::format("{} started {} processes as one job, but this program's MPI, {}, finds {} of them; expected {}",
                     program_of(launch.kind), launch.processes, own, ranks,
                     launch.kind == LauncherKind::slurm
                         ? fmt::format("the mpirun of {}, or srun with an --mpi= that it supports", own)
                         : fmt::format("the mpirun of {}", own));
}

bool cannot_start(const ReadVariable& variable, std::string_view library) {
  // By these Open MPI recognises a step.
  const bool in_step = variable("SLURM_NODELIST") && (variable("SLURM_STEPID") || variable("SLURM_STEP_ID"));
  const bool has_pmix = variable("PMIX_NAMESPACE") || variable("OMPI_COMM_WORLD_SIZE");
  return in_step && !has_pmix && library.find("package: Debian OpenMPI") != std::string_view::npos;
}

}  // namespace lockstep
