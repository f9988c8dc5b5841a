// What the user asks lockstep-run for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/placement.hpp"
#include "core/cluster/launch.hpp"

namespace lockstep::run {

struct CommandLine {
  std::optional<std::string> answer;  ///< the help or the version, if asked for; then nothing else is set
  int ranks = 1;
  std::optional<int> min_ranks;
  int max_restarts = 100;
  bool skips_wrong_hosts = false;                     ///< --on-miscompute skip-host
  std::optional<std::chrono::seconds> start_timeout;  ///< 0: none
  std::vector<Host> hosts;                            ///< with a cluster spec, those that it names
  std::string allocation;                             ///< what the scheduler gave, if these are its hosts
  bool mpirun_knows_hosts = false;                    ///< from the scheduler
  std::optional<Placement> placement;                 ///< of the cluster spec, if there is one
  std::string network;                ///< of MPI and mpirun between the hosts, as "10.0.0.0/24"; empty: they choose
  bool probe = false;                 ///< ask the hosts whether they have what the job needs, before the first start
  bool dry_run = false;               ///< print what would be started
  MpiKind mpi = MpiKind::open_mpi_4;  ///< the MPI that mpirun belongs to
  std::vector<std::string> mpirun;    ///< with its options
  std::vector<std::string> command;   ///< what follows --
};

/// ConfigError in one line that says what is wrong. `variable` reads the environment, for what a scheduler left there.
CommandLine parse_command_line(int argc, const char* const* argv, const ReadVariable& variable);

}  // namespace lockstep::run
