#include "support/hosts.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "support/this_mpi.hpp"

namespace lockstep::test {
namespace {

constexpr const char* network_of_hosts = "10.77.0.0/24";

void ip(const std::string& arguments) {
  std::vector<std::string> command{"ip"};
  for (std::size_t first = 0; first < arguments.size();) {
    const std::size_t end = std::min(arguments.find(' ', first), arguments.size());
    command.push_back(arguments.substr(first, end - first));
    first = end + 1;
  }
  const Outcome outcome = run_command(command);
  if (outcome.exit_code != 0) throw std::runtime_error{fmt::format("ip {}: {}", arguments, last_line(outcome.err))};
}

std::string from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (!value || !*value) throw std::runtime_error{fmt::format("{} is not set; `meson test` sets it", variable)};
  return value;
}

}  // namespace

std::optional<std::string> Hosts::why_not() {
  try {
    const Hosts two{2};
    return std::nullopt;
  } catch (const std::exception& error) {
    return error.what();
  }
}

Hosts::Hosts(int count) : network_{fmt::format("ls{}net", ::getpid())} {
  try {
    ip("netns add " + network_);
    ip(fmt::format("-n {} link add hub type bridge", network_));
    ip(fmt::format("-n {} link set hub up", network_));
    for (int host = 0; host < count; ++host) {
      // Names that mpirun does not take for a range of one name.
      const std::string name = fmt::format("ls{}{}", ::getpid(), static_cast<char>('a' + host));
      ip("netns add " + name);
      names_.push_back(name);
      ip(fmt::format("link add eth0 netns {} type veth peer name port{} netns {}", name, host, network_));
      ip(fmt::format("-n {} addr add 10.77.0.{}/24 dev eth0", name, host + 1));
      for (const char* device : {"lo", "eth0"}) ip(fmt::format("-n {} link set {} up", name, device));
      ip(fmt::format("-n {} link set port{} master hub up", network_, host));
    }
  } catch (...) {
    remove();
    throw;
  }
}

Hosts::~Hosts() {
  remove();
}

void Hosts::remove() const {
  std::error_code ignored;  // what a test left is no reason to fail the next
  for (const std::string& session : sessions_left()) std::filesystem::remove_all(session, ignored);
  for (const std::string& name : names_) (void)run_command({"ip", "netns", "del", name});
  (void)run_command({"ip", "netns", "del", network_});
}

void Hosts::cut(int host) const {
  ip(fmt::format("-n {} link set port{} down", network_, host));
}

void Hosts::mend(int host) const {
  ip(fmt::format("-n {} link set port{} up", network_, host));
}

void Hosts::silence_datagrams(int host) const {
  ip(fmt::format("-n {} rule add ipproto udp blackhole", names_[static_cast<std::size_t>(host)]));
}

std::vector<std::string> Hosts::sessions_left() const {
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator{std::filesystem::temp_directory_path()})
    for (const std::string& name : names_)
      for (const char* prefix : {"ompi.", "prte."})
        if (entry.path().filename().string().starts_with(prefix + name)) left.push_back(entry.path());
  return left;
}

std::vector<std::string> keepalive() {
  if (of_hydra) return {};
  const std::string of_mpirun = this_mpi == MpiKind::open_mpi_5 ? "--prtemca" : "--mca";
  return {of_mpirun, "oob_tcp_keepalive_time",   "2", of_mpirun, "oob_tcp_keepalive_intvl", "1",
          of_mpirun, "oob_tcp_keepalive_probes", "2"};
}

namespace {

/// Options that spread the ranks over all hosts.
std::vector<std::string> spread(const Hosts& hosts, int ranks_each) {
  std::vector<std::string> slots;
  for (const std::string& name : hosts.names()) slots.push_back(fmt::format("{}:{}", name, ranks_each));
  const int ranks = ranks_each * static_cast<int>(hosts.names().size());
  return {"--host", fmt::format("{}", fmt::join(slots, ",")), "-n", std::to_string(ranks)};
}

/// Runs what starts a job, with its arguments and a program, on the first host.
Outcome launch_on(const Hosts& hosts, const std::string& launcher, const std::vector<std::string>& where,
                  const std::vector<std::string>& launcher_arguments, const std::vector<std::string>& program,
                  const CommandOptions& options) {
  const std::string shell = from_environment("LOCKSTEP_HOST_SHELL");
  std::vector<std::string> command{shell, "--exec", hosts.names().front(), launcher};
  command.insert(command.end(), where.begin(), where.end());
  command.insert(command.end(), launcher_arguments.begin(), launcher_arguments.end());
  command.insert(command.end(), program.begin(), program.end());
  CommandOptions with_mpi = options;
  // mpirun 4.1 reads memory that it has freed when a rank behind a daemon dies. Where freed memory keeps what it
  // held, nothing comes of that; meson test has it overwritten.
  with_mpi.environment.insert({{"MALLOC_PERTURB_", "0"},
                               {"OMPI_MCA_btl", "self,vader,tcp"},
                               {"OMPI_MCA_btl_tcp_if_include", network_of_hosts},
                               {"OMPI_MCA_oob_tcp_if_include", network_of_hosts},
                               {"OMPI_MCA_plm_rsh_agent", shell},
                               // The same for Open MPI 5, and for MPICH.
                               {"PRTE_MCA_prte_if_include", network_of_hosts},
                               {"PRTE_MCA_plm_ssh_agent", shell},
                               // As for users: a host takes no more than its slots.
                               {"PRTE_MCA_rmaps_default_mapping_policy", "slot"},
                               {"HYDRA_LAUNCHER", "rsh"},
                               {"HYDRA_LAUNCHER_EXEC", shell},
                               {"HYDRA_IFACE", "eth0"},
                               {"I_MPI_HYDRA_BOOTSTRAP", "rsh"},
                               {"I_MPI_HYDRA_BOOTSTRAP_EXEC", shell},
                               {"I_MPI_HYDRA_IFACE", "eth0"},
                               // Otherwise it finds that these hosts share the memory of one.
                               {"UCX_TLS", "tcp,self"},
                               // Where sessions_left() looks. No other job has these hosts.
                               {"OMPI_MCA_orte_tmpdir_base", std::filesystem::temp_directory_path()}});
  with_mpi.environment.insert(mpi_environment().begin(), mpi_environment().end());
  return run_command(command, with_mpi);
}

}  // namespace

Outcome run_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& program,
               const CommandOptions& options, const std::vector<std::string>& mpirun_arguments) {
  std::vector<std::string> where = spread(hosts, ranks_each);
  // Intel's knows no slots.
  if (this_mpi == MpiKind::intel_mpi)
    where = {"-ppn",      std::to_string(ranks_each), "-hosts", fmt::format("{}", fmt::join(hosts.names(), ",")), "-n",
             where.back()};
  return launch_on(hosts, "mpirun", where, mpirun_arguments, program, options);
}

namespace {

Outcome supervise(const Hosts& hosts, const std::vector<std::string>& where, const std::vector<std::string>& arguments,
                  const CommandOptions& options, const std::vector<std::string>& supervision) {
  std::vector<std::string> program{from_environment("LOCKSTEP_TRAIN")};
  program.insert(program.end(), arguments.begin(), arguments.end());
  std::vector<std::string> more{"--mpirun", fmt::format("mpirun {}", fmt::join(keepalive(), " "))};
  more.insert(more.end(), supervision.begin(), supervision.end());
  more.push_back("--");
  return launch_on(hosts, from_environment("LOCKSTEP_RUN"), where, more, program, options);
}

}  // namespace

Outcome supervise_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& arguments,
                     const CommandOptions& options, const std::vector<std::string>& supervision) {
  return supervise(hosts, spread(hosts, ranks_each), arguments, options, supervision);
}

Outcome supervise_by_spec(const Hosts& hosts, const std::filesystem::path& spec,
                          const std::vector<std::string>& arguments, const CommandOptions& options,
                          const std::vector<std::string>& supervision) {
  return supervise(hosts, {"--cluster-spec", spec}, arguments, options, supervision);
}

Outcome run_job_on(const Hosts& hosts, int ranks_each, const std::vector<std::string>& arguments,
                   const CommandOptions& options, const std::vector<std::string>& mpirun_arguments) {
  std::vector<std::string> program{from_environment("LOCKSTEP_TRAIN")};
  program.insert(program.end(), arguments.begin(), arguments.end());
  return run_on(hosts, ranks_each, program, options, mpirun_arguments);
}

}  // namespace lockstep::test
