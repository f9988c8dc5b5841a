#include "core/cluster/launch.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <fmt/format.h>

#include "core/base/decimal.hpp"
#include "core/base/excerpt.hpp"

namespace lockstep {
namespace {

/// By what a launcher's processes are called.
struct LauncherName {
  std::string_view name;
  LauncherKind kind;
  LauncherPart part;
};
constexpr std::array launcher_names{
    // MPICH's are called mpirun and mpiexec too, but its ranks are children of its proxies.
    LauncherName{"mpirun", LauncherKind::open_mpi, LauncherPart::job},
    LauncherName{"mpiexec", LauncherKind::open_mpi, LauncherPart::job},
    LauncherName{"mpirun.openmpi", LauncherKind::open_mpi, LauncherPart::job},
    LauncherName{"mpiexec.openmpi", LauncherKind::open_mpi, LauncherPart::job},
    LauncherName{"orterun", LauncherKind::open_mpi, LauncherPart::job},
    LauncherName{"orted", LauncherKind::open_mpi, LauncherPart::node},
    // What mpirun of Open MPI 5 becomes.
    LauncherName{"prterun", LauncherKind::open_mpi, LauncherPart::job},
    // Those of PRRTE's machine may serve other jobs too.
    LauncherName{"prted", LauncherKind::open_mpi, LauncherPart::other},
    LauncherName{"prte", LauncherKind::open_mpi, LauncherPart::other},
    LauncherName{"hydra_pmi_proxy", LauncherKind::pmi, LauncherPart::node},
    LauncherName{"mpiexec.hydra", LauncherKind::pmi, LauncherPart::other},
    LauncherName{"mpiexec.mpich", LauncherKind::pmi, LauncherPart::other},
    LauncherName{"mpirun.mpich", LauncherKind::pmi, LauncherPart::other},
    // Of srun, one for each node and step.
    LauncherName{"slurmstepd", LauncherKind::slurm, LauncherPart::other},
};

const LauncherName* find_launcher(std::string_view process) {
  const auto found = std::ranges::find(launcher_names, process, &LauncherName::name);
  return found == launcher_names.end() ? nullptr : &*found;
}

std::optional<int> whole_number(const char* text) {
  int number = 0;
  return text && parse_decimal(text, number) ? std::optional{number} : std::nullopt;
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
    case LauncherKind::pmi: return "mpiexec of MPICH, Intel MPI or another PMI launcher";
    case LauncherKind::slurm: return "srun";
  }
  return "?";
}

/// "Open MPI v4.1.4, package: …" is "Open MPI v4.1.4", and "MPICH Version:      4.0.2" is "MPICH 4.0.2".
std::string short_version(std::string_view library) {
  std::istringstream words{std::string{library.substr(0, library.find_first_of(",\r\n"))}};
  std::string text;
  for (std::string word; words >> word;)
    if (word != "Version:") text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string_view srun_for(std::string_view library) {
  return library.starts_with("Open MPI") ? "srun --mpi=pmix" : "srun with an --mpi= that it supports";
}

}  // namespace

std::string launch_warning(const ReadVariable& variable) {
  const char* const tasks = variable("SLURM_NTASKS");
  const char* const number = variable("SLURM_PROCID");
  const auto is_rank = [&](const LauncherVariables& each) { return variable(each.rank_of_mpi) != nullptr; };
  if (!tasks || std::atoi(tasks) < 2 || (number && std::string_view{number} != "0") ||
      std::ranges::any_of(launcher_variables, is_rank))
    return {};
  return fmt::format(
      "SLURM_NTASKS is {}, but this process is a job of 1 rank, because MPI's launcher did not start it; expected "
      "mpirun or srun --mpi=pmix",
      excerpt(tasks));
}

MpiKind mpi_kind_of(std::string_view library) {
  if (library.starts_with("MPICH")) return MpiKind::mpich;
  constexpr std::string_view open_mpi = "Open MPI v";
  if (!library.starts_with(open_mpi)) return library.starts_with("Intel(R) MPI") ? MpiKind::intel_mpi : MpiKind::other;
  return std::atoi(std::string{library.substr(open_mpi.size())}.c_str()) < 5 ? MpiKind::open_mpi_4
                                                                             : MpiKind::open_mpi_5;
}

std::optional<LauncherKind> launcher_of_name(std::string_view process) {
  const LauncherName* const found = find_launcher(process);
  return found ? std::optional{found->kind} : std::nullopt;
}

LauncherPart part_of_launcher(std::string_view parent, const ReadVariable& variable) {
  const char* const job = variable("PMIX_NAMESPACE");
  // A daemon that prterun has started for its one job: the name of the job begins with who that is.
  if (parent == "prted" && job && std::string_view{job}.starts_with("prterun-")) return LauncherPart::node;
  const LauncherName* const found = find_launcher(parent);
  return found ? found->part : LauncherPart::other;
}

std::chrono::milliseconds launcher_waits(const ReadVariable& variable) {
  const char* const job = variable("PMIX_NAMESPACE");
  const bool is_prrte = job && std::string_view{job}.starts_with("prte");
  return is_prrte ? std::chrono::milliseconds{250} : std::chrono::seconds{1};
}

std::string_view name_of_job(const ReadVariable& variable) {
  const char* const job = variable("PMIX_NAMESPACE");
  if (job && *job) return job;
  // A proxy of hydra's starts those of one job.
  return variable("PMI_RANK") ? "pmi" : "";
}

std::optional<LaunchPlace> find_place(const ReadVariable& variable, std::optional<LauncherKind> nearest) {
  const auto number = [&](const char* name) { return whole_number(variable(name)); };
  const auto number_here = [&](const LauncherVariables& names) {
    if (names.kind != LauncherKind::slurm) return number(names.processes_here).value_or(0);
    const char* const ranks = variable(names.processes_here);
    return ranks ? 1 + static_cast<int>(std::ranges::count(std::string_view{ranks}, ',')) : 0;
  };
  std::optional<LaunchPlace> place;
  for (const LauncherVariables& each : launcher_variables) {
    const auto rank = number(each.rank_of_mpi);
    if (!rank || (place && each.kind != nearest)) continue;
    place = {*rank, number(each.processes).value_or(0), number_here(each)};
  }
  return place;
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
  const std::string started =
      launch.processes == 1 ? "1 process" : fmt::format("{} processes as one job", launch.processes);
  return fmt::format("{} started {}, but this program's MPI, {}, {}; expected {}", program_of(launch.kind), started,
                     own, ranks == 0 ? "cannot start there without PMIx" : fmt::format("finds {} of them", ranks),
                     launch.kind == LauncherKind::slurm ? fmt::format("the mpirun of {}, or {}", own, srun_for(own))
                                                        : fmt::format("the mpirun of {}", own));
}

bool cannot_start(const ReadVariable& variable, std::string_view library) {
  // By these Open MPI recognises a step.
  const bool in_step = variable("SLURM_NODELIST") && (variable("SLURM_STEPID") || variable("SLURM_STEP_ID"));
  const bool has_pmix = variable("PMIX_NAMESPACE") || variable("OMPI_COMM_WORLD_SIZE");
  return in_step && !has_pmix && library.find("package: Debian OpenMPI") != std::string_view::npos;
}

}  // namespace lockstep
