#include "apps/lockstep-run/launcher_words.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/comm/mpi/mpi_library.hpp"
#include "core/watch/network.hpp"

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

/// The values of an option of one of these names, as the next word or after '='.
Words values_of(const Words& words, std::initializer_list<std::string_view> names) {
  Words values;
  for (auto word = words.begin(); word != words.end(); ++word) {
    std::string_view option = *word;
    if (!option.starts_with('-')) continue;
    option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
    for (const std::string_view name : names) {
      if (option == name && word + 1 != words.end()) values.push_back(word[1]);
      if (option.starts_with(name) && option.substr(name.size()).starts_with('='))
        values.emplace_back(option.substr(name.size() + 1));
    }
  }
  return values;
}

/// A parameter of Open MPI 4's mpirun: in the command, or in the environment. Empty without it.
std::string parameter_of(const Words& command, const std::string& name) {
  if (const auto found = std::ranges::find(command, name); found != command.end() && found + 1 != command.end())
    return found[1];
  const char* const value = std::getenv(("OMPI_MCA_" + name).c_str());
  return value ? value : "";
}

bool is_on(std::string_view value) {
  return !value.empty() && value != "0" && value != "false" && value != "no";
}

std::string what_hides_stderr_of_open_mpi_4(const Words& command) {
  constexpr std::string_view alone = ":nocopy";
  for (const std::string& file : values_of(command, {"output-filename"}))
    if (file.find(alone) != file.npos) return "--output-filename " + file;
  if (const std::string file = parameter_of(command, "orte_output_filename"); file.find(alone) != file.npos)
    return "orte_output_filename=" + file;
  for (const char* option : {"xml", "xml-file", "xterm"})
    if (has_option(command, {option}) || !values_of(command, {option}).empty()) return fmt::format("--{}", option);
  for (const char* name : {"orte_xml_output", "orte_xml_file", "orte_xterm"})
    if (const std::string value = parameter_of(command, name); is_on(value)) return fmt::format("{}={}", name, value);
  return {};
}

std::string what_hides_stderr_of_open_mpi_5(const Words& command) {
  for (const std::string& value : values_of(command, {"output"}))
    for (const char* each : {"merge", "dir=", "file="})
      if (("," + value).find(fmt::format(",{}", each)) != std::string::npos) return "--output " + value;
  for (const char* option : {"output-filename", "merge-stderr-to-stdout"})
    if (has_option(command, {option}) || !values_of(command, {option}).empty()) return fmt::format("--{}", option);
  return {};
}

/// Without a file for stderr, it goes where stdout goes.
std::string what_hides_stderr_of_srun(const Words& command) {
  for (const auto& [option, letter, variable] :
       {std::tuple{"error", "-e", "SLURM_STDERRMODE"}, std::tuple{"output", "-o", "SLURM_STDOUTMODE"}}) {
    Words values = values_of(command, {option});
    for (auto word = command.begin(); word != command.end(); ++word) {
      if (*word == letter && word + 1 != command.end()) values.push_back(word[1]);
      if (word->starts_with(letter) && word->size() > 2) values.push_back(word->substr(2));
    }
    if (!values.empty()) return values.back() == "all" ? "" : fmt::format("--{}={}", option, values.back());
    if (const char* const value = std::getenv(variable))
      return std::string_view{value} == "all" ? "" : fmt::format("{}={}", variable, value);
  }
  return {};
}

bool has_variable(std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [](const char* name) { return std::getenv(name) != nullptr; });
}

/// Whether hydra is told hosts, or finds them in a scheduler's job.
bool names_hosts(const Words& command) {
  return has_option(command, {"f", "host", "hosts", "hostlist", "hostfile", "machinefile", "machine", "machines"}) ||
         has_variable({"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
                       "PBS_NODEFILE", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "COBALT_NODEFILE"});
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
  } else if (has_hydra(mpi) && !names_mpirun(command)) {
    throw ConfigError{fmt::format(
        "--network {}: expected mpiexec of MPICH or Intel MPI to start the ranks, which is told it", network)};
  } else if (has_hydra(mpi) && !has_option(command, {"iface"}) && !has_variable({"HYDRA_IFACE", "I_MPI_HYDRA_IFACE"})) {
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

RankLabels labels_of(const Words& command) {
  RankLabels labels;
  for (const std::string& pattern : values_of(command, {"prepend-pattern"})) labels.add(pattern);
  return labels;
}

std::string what_hides_stderr(MpiKind mpi, const Words& command) {
  if (names_srun(command)) return what_hides_stderr_of_srun(command);
  switch (mpi) {
    case MpiKind::open_mpi_4: return what_hides_stderr_of_open_mpi_4(command);
    case MpiKind::open_mpi_5: return what_hides_stderr_of_open_mpi_5(command);
    case MpiKind::mpich:
    case MpiKind::intel_mpi:
      for (const char* option : {"errfile-pattern", "errfile"})
        for (const std::string& file : values_of(command, {option})) return fmt::format("-{} {}", option, file);
      return {};
    case MpiKind::other: return {};
  }
  return {};
}

Words words_of_srun(const Words& hosts) {
  return {"--distribution=arbitrary", "--nodelist", fmt::format("{}", fmt::join(hosts, ","))};
}

Words words_of_hosts(MpiKind mpi, const Words& command, std::span<const Host> hosts, int ranks) {
  const bool by_srun = names_srun(command);
  if (!by_srun && mpi != MpiKind::intel_mpi) return {"--host", to_host_list(hosts)};
  Words names;
  for (const Host& host : hosts)
    for (int slot = 0; slot < host.slots && static_cast<int>(names.size()) < ranks; ++slot) names.push_back(host.name);
  return by_srun ? words_of_srun(names) : Words{"-ppn", "1", "-hosts", fmt::format("{}", fmt::join(names, ","))};
}

Words words_of_placement(MpiKind mpi, int ranks, const std::string& hostfile) {
  const std::string number = std::to_string(ranks);
  if (mpi == MpiKind::mpich) return {"-n", number, "-f", hostfile};
  if (mpi == MpiKind::intel_mpi) return {"-n", number, "-machinefile", hostfile};
  // With a number of ranks, mpirun of Open MPI 5.0 fails to start those of other hosts. Without one it counts the
  // lines.
  if (mpi == MpiKind::open_mpi_5) return {"--hostfile", hostfile, "--map-by", "seq"};
  return {"-n", number, "--hostfile", hostfile, "--map-by", "seq"};
}

}  // namespace lockstep::run
