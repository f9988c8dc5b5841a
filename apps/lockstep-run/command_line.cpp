#include "apps/lockstep-run/command_line.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/allocation.hpp"
#include "apps/lockstep-run/launcher_words.hpp"
#include "apps/options/option_parser.hpp"
#include "apps/options/option_values.hpp"
#include "core/watch/network.hpp"

namespace lockstep::run {
namespace {

std::vector<std::string> words_of(const std::string& option, const std::string& text) {
  std::istringstream words{text};
  std::vector<std::string> found{std::istream_iterator<std::string>{words}, {}};
  if (found.empty()) throw ConfigError{fmt::format("{} '': expected a command, such as mpirun", option)};
  return found;
}

/// The ranks and hosts of a job are those of its spec.
void take_spec(const ClusterSpec& spec, std::optional<int> ranks, CommandLine& line) {
  if (line.mpi == MpiKind::other)
    throw ConfigError{
        "--cluster-spec: expected a lockstep with Open MPI or MPICH, whose mpirun is told the host of each rank"};
  if (!line.hosts.empty())
    throw ConfigError{
        "--cluster-spec was given with --host or --hostfile: expected one of them, as each names the hosts"};
  line.placement = Placement{spec};
  line.hosts = line.placement->hosts();
  if (ranks && *ranks != line.placement->ranks())
    throw ConfigError{fmt::format("-n {}: {} makes {} ranks; expected that number, or no -n", *ranks, spec.source(),
                                  line.placement->ranks())};
}

/// What is asked for has to fit the allocation, and is all of it where nothing is.
void take_allocation(const Allocation& allocation, std::optional<int> ranks, CommandLine& line) {
  const std::string has =
      fmt::format("{} has {} on {}", allocation.source,
                  slots_of(allocation.hosts) == 1 ? "1 slot" : fmt::format("{} slots", slots_of(allocation.hosts)),
                  to_host_list(allocation.hosts));
  if (!line.hosts.empty()) return require_in_allocation(line.hosts, allocation);
  if (ranks && *ranks > slots_of(allocation.hosts))
    throw ConfigError{fmt::format("-n {}: {}; expected at most as many ranks, or --ignore-scheduler", *ranks, has)};
  line.hosts = allocation.hosts;
  line.allocation = has;
  line.mpirun_knows_hosts = allocation.is_known_to_mpirun;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv, const ReadVariable& variable) {
  constexpr int most_ranks = 1 << 20;
  CommandLine line;
  line.mpi = own_mpi();
  line.mpirun = {LOCKSTEP_MPIRUN};
  std::optional<int> ranks;
  OptionParser parser{
      "lockstep-run",
      "Runs a training under mpirun, and starts it again from its newest checkpoint when a rank or a host fails.\n\n"
      "  lockstep-run -n 4 -- lockstep-train --data DIR --checkpoint-dir run1\n"
      "  lockstep-run --hostfile hosts --min-ranks 2 -- lockstep-train --data DIR --checkpoint-dir run1\n"
      "  lockstep-run --cluster-spec cluster.json -- lockstep-train --data DIR --checkpoint-dir run1\n\n"
      "SIGINT, SIGTERM, SIGHUP and SIGUSR1 let the training save a checkpoint and end with exit code 75; a second "
      "SIGINT, SIGTERM or SIGHUP ends it at once. SIGUSR2 makes the job say where its ranks are.\n"
      "Exit codes: that of the job, 130, 143 or 129 when a second signal ended it, 2 wrong options, or a host that "
      "cannot be reached, or does not answer, at the first start."};
  const auto number = [&](const char* name, const char* value_name, const std::string& help, int smallest, auto take) {
    parser.option(name, value_name, help, [=](const std::string& option, const std::string& text) {
      take(static_cast<int>(parse_count(option, text, smallest, most_ranks)));
    });
  };
  number("-n", "N", "Ranks (default: the slots of the hosts)", 1, [&](int value) { ranks = value; });
  number("--min-ranks", "M",
         "Fewest ranks to go on with after hosts failed; if given, also at the first start (default 1)", 1,
         [&](int value) { line.min_ranks = value; });
  number("--max-restarts", "R", "Restarts in all, after which to give up (default 100)", 0,
         [&](int value) { line.max_restarts = value; });
  number("--start-timeout", "SECONDS",
         "How long a job may take to begin before the hosts are asked whether they answer, 0 for ever (default: 60 for "
         "lockstep-train, 0 for other programs)",
         0, [&](int value) { line.start_timeout = std::chrono::seconds{value}; });
  parser.option("--on-miscompute", "stop|skip-host",
                "What to do when an audit finds a host that computes or reads wrong: end with exit code 9, or start "
                "again from the newest checkpoint, the second time without that host (default stop)",
                [&](const std::string& option, const std::string& text) {
                  if (text != "stop" && text != "skip-host")
                    throw ConfigError{fmt::format("{} {}: expected stop or skip-host", option, shown(text))};
                  line.skips_wrong_hosts = text == "skip-host";
                });
  parser.option(
      "--host", "HOST:SLOTS,...", "Hosts of the job, as mpirun's --host (default: mpirun chooses)",
      [&](const std::string& option, const std::string& text) { line.hosts = parse_host_list(option, text); });
  std::vector<Host> in_file;
  parser.option("--hostfile", "FILE", "The same from a file of lines such as 'node1 slots=2', as mpirun's --hostfile",
                [&](const std::string& option, const std::string& text) {
                  in_file = parse_hostfile(read_hostfile(option, text), text);
                });
  std::string spec;
  parser.option("--cluster-spec", "FILE",
                "Run each task of a cluster spec on the host that its address names; the job takes the tasks from "
                "TF_CONFIG. Ranks and hosts follow from it",
                [&](const std::string& option, const std::string& text) { spec = parse_file_name(option, text); });
  parser.option(
      "--network", "CIDR", "The network between the hosts, such as 10.77.0.0/24 (default: MPI chooses)",
      [&](const std::string& option, const std::string& text) {
        if (line.mpi == MpiKind::other)
          throw ConfigError{
              fmt::format("{}: expected a lockstep with Open MPI or MPICH, whose mpirun is told the network", option)};
        if (!parse_network(text))
          throw ConfigError{fmt::format("{} {}: expected a network such as 10.77.0.0/24", option, shown(text))};
        line.network = text;
      });
  parser.flag("--probe",
              "First check that each host has the program in the same version, the data, room in /dev/shm and GPUs; "
              "otherwise end with exit code 2 and a line for each host that lacks something",
              [&] { line.probe = true; });
  bool ignore_scheduler = false;
  parser.flag("--ignore-scheduler",
              "Ignore the job of Slurm, PBS or the MPI operator (default: take ranks and hosts from it, unless options "
              "name them)",
              [&] { ignore_scheduler = true; });
  parser.flag("--dry-run", "Print what would be started, as lines for a shell, and end", [&] { line.dry_run = true; });
  parser.option("--mpirun", "COMMAND",
                "What starts a job: a program and its options, separated by blanks (default " LOCKSTEP_MPIRUN ")",
                [&](const std::string& option, const std::string& text) { line.mpirun = words_of(option, text); });

  const char* const* const end = argv + argc;
  const char* const* const separator =
      std::find_if(argv, end, [](const char* word) { return !std::strcmp(word, "--"); });
  line.answer = parser.parse(static_cast<int>(separator - argv), argv);
  if (line.answer) return line;
  if (separator == end) throw ConfigError{"no command was given: expected lockstep-run [options] -- lockstep-train …"};
  line.command.assign(separator + 1, end);
  if (!in_file.empty()) {
    if (!line.hosts.empty())
      throw ConfigError{"--host and --hostfile were both given: expected at most one of the two"};
    line.hosts = std::move(in_file);
  }
  if (!spec.empty()) take_spec(ClusterSpec::from_file(spec), ranks, line);
  if (const auto allocation = ignore_scheduler ? std::nullopt : read_allocation(variable))
    take_allocation(*allocation, ranks, line);
  if (!ranks && line.hosts.empty())
    throw ConfigError{
        "-n is missing: expected the number of ranks, or hosts with their slots (--host, --hostfile, "
        "--cluster-spec)"};
  if (line.probe && line.hosts.empty())
    throw ConfigError{"--probe: expected hosts to ask (--host, --hostfile or --cluster-spec)"};
  line.ranks = ranks.value_or(slots_of(line.hosts));
  return line;
}

}  // namespace lockstep::run
