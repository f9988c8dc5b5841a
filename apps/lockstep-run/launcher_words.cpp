#include "apps/lockstep-run/launcher_words.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>

#include "comm/mpi/mpi_library.hpp"
#include "control/network.hpp"

namespace lockstep::run {
namespace {

/// Whether one of the words is an option of one of these names, with any number of dashes.
bool has_option(const Words& words, std::initializer_list<std::string_view> names) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    if (!word.starts_with('-')) return false;
    word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
    return std::ranges::find(names, word) != names.end();
  });
}

bool has_variable(std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [](const char* name) { return std::getenv(name) != nullptr; });
}

/// Whether MPICH's mpiexec is told hosts, or finds them in a scheduler's job.
bool names_hosts(const Words& command) {
  return has_option(command, {"f", "host", "hosts", "hostlist", "hostfile", "machinefile", "machine", "machines"}) ||
         has_variable({"HYDRA_HOST_FILE", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_NODEFILE", "LSB_MCPU_HOSTS",
                       "PE_HOSTFILE", "COBALT_NODEFILE"});
}

/// Whether Open MPI's mpirun is told how to bind ranks.
bool names_binding(const Words& command) {
  const auto says = [](const std::string& word) {
    return word.find("hwloc_base_binding_policy") != word.npos ||
           word.find("hwloc_default_binding_policy") != word.npos || word.find("PE=") != word.npos ||
           word.find("pe=") != word.npos;
  };
  return has_option(command, {"bind-to", "bind-to-core", "bind-to-socket", "cpu-set", "cpu-list", "rankfile", "rf",
                              "cpus-per-proc", "cpus-per-rank"}) ||
         std::ranges::any_of(command, says) ||
         has_variable({"OMPI_MCA_hwloc_base_binding_policy", "PRTE_MCA_hwloc_default_binding_policy"});
}

/// A parameter of MPI itself, or of Open MPI's mpirun, which is a project of its own since version 5 (PRRTE).
enum class Whose { mpi, mpirun };

void set_parameter(MpiKind mpi, Words& command, Whose whose, const std::string& name, const std::string& value) {
  const bool of_prrte = mpi == MpiKind::open_mpi_5 && whose == Whose::mpirun;
  const std::string variable = (of_prrte ? "PRTE_MCA_" : "OMPI_MCA_") + name;
  // Who names one in --mpirun, or in the environment, knows better.
  if (std::ranges::find(command, name) != command.end() || std::getenv(variable.c_str())) return;
  command.insert(command.end(), {of_prrte ? "--prtemca" : "--mca", name, value});
}

}  // namespace

MpiKind own_mpi() {
  return mpi_kind_of(mpi_library());
}

bool names_mpirun(const Words& command) {
  return std::ranges::any_of(command, [](const std::string& word) {
    const std::string name = std::filesystem::path{word}.filename();
    return name.starts_with("mpirun") || name.starts_with("mpiexec") || name == "orterun" || name == "prterun";
  });
}

bool names_srun(const Words& command) {
  return std::ranges::any_of(command,
                             [](const std::string& word) { return std::filesystem::path{word}.filename() == "srun"; });
}

void let_ranks_speak(MpiKind mpi, Words& command) {
  if (mpi != MpiKind::mpich || !names_mpirun(command) || names_hosts(command) ||
      has_option(command, {"disable-auto-cleanup", "enable-auto-cleanup"}))
    return;
  command.emplace_back("-disable-auto-cleanup");
}

void use_network(MpiKind mpi, Words& command, const std::string& network) {
  constexpr const char* variable = "OMPI_MCA_btl_tcp_if_include";
  if (is_open_mpi(mpi) && names_srun(command)) {
    if (!std::getenv(variable)) command.insert(command.begin(), {"env", fmt::format("{}={}", variable, network)});
  } else if (is_open_mpi(mpi)) {
    set_parameter(mpi, command, Whose::mpi, "btl_tcp_if_include", network);
    set_parameter(mpi, command, Whose::mpirun, mpi == MpiKind::open_mpi_4 ? "oob_tcp_if_include" : "prte_if_include",
                  network);
  } else if (mpi == MpiKind::mpich && !names_mpirun(command)) {
    throw ConfigError{
        fmt::format("--network {}: expected MPICH's mpiexec to start the ranks, which is told it", network)};
  } else if (mpi == MpiKind::mpich && !has_option(command, {"iface"}) && !has_variable({"HYDRA_IFACE"})) {
    const std::vector<HostAddress> here = named_addresses(host_addresses(), network);
    if (here.empty())
      throw ConfigError{
          fmt::format("--network {}: this host has no address there; expected a network of this host", network)};
    command.insert(command.end(), {"-iface", here.front().interface});
  }
}

void leave_unbound(MpiKind mpi, Words& command) {
  if (is_open_mpi(mpi) && names_mpirun(command) && !names_binding(command))
    command.insert(command.end(), {"--bind-to", "none"});
}

void probe_connections(MpiKind mpi, Words& command) {
  if (!is_open_mpi(mpi)) return;
  constexpr std::pair<const char*, const char*> keepalive[] = {
      {"oob_tcp_keepalive_time", "3"}, {"oob_tcp_keepalive_intvl", "1"}, {"oob_tcp_keepalive_probes", "3"}};
  for (const auto& [name, value] : keepalive) set_parameter(mpi, command, Whose::mpirun, name, value);
}

bool starts_hosts_together(MpiKind mpi, const Words& command) {
  return is_open_mpi(mpi) && !names_srun(command);
}

bool gives_no_variables(MpiKind mpi, const Words& command, std::span<const Host> hosts) {
  // Other launchers give them all, and take -x for something else: srun's leaves out hosts. Only Open MPI's has slots
  // in --host.
  return is_open_mpi(mpi) && !names_srun(command) && (!hosts.empty() || names_mpirun(command));
}

Words words_of_srun(const Words& hosts) {
  return {"--distribution=arbitrary", "--nodelist", fmt::format("{}", fmt::join(hosts, ","))};
}

Words words_of_hosts(const Words& command, std::span<const Host> hosts, int ranks) {
  if (!names_srun(command)) return {"--host", to_host_list(hosts)};
  Words names;
  for (const Host& host : hosts)
    for (int slot = 0; slot < host.slots && static_cast<int>(names.size()) < ranks; ++slot) names.push_back(host.name);
  return words_of_srun(names);
}

Words words_of_placement(MpiKind mpi, int ranks, const std::string& hostfile) {
  const std::string number = std::to_string(ranks);
  if (mpi == MpiKind::mpich) return {"-n", number, "-f", hostfile};
  // With a number of ranks, mpirun of Open MPI 5.0 fails to start those of other hosts. Without one it counts the
  // lines.
  if (mpi == MpiKind::open_mpi_5) return {"--hostfile", hostfile, "--map-by", "seq"};
  return {"-n", number, "--hostfile", hostfile, "--map-by", "seq"};
}

}  // namespace lockstep::run
