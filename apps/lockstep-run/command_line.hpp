// What the user asks lockstep-run for.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"

namespace lockstep::run {

struct CommandLine {
  std::optional<std::string> answer;  ///< the help or the version, if asked for; then nothing else is set
  int ranks = 1;
  std::optional<int> min_ranks;
  int max_restarts = 100;
  std::optional<std::chrono::seconds> start_timeout;  ///< 0: none
  std::vector<Host> hosts;
  std::vector<std::string> mpirun;   ///< with its options
  std::vector<std::string> command;  ///< what follows --
};

/// ConfigError in one line that says what is wrong.
CommandLine parse_command_line(int argc, const char* const* argv);

/// Whether ranks on other hosts get no variables but those that -x names. `mpirun` is a command with its options.
bool gives_no_variables(const std::vector<std::string>& mpirun, const std::vector<Host>& hosts);

}  // namespace lockstep::run
