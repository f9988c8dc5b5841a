// lockstep-train's command line.
#pragma once

#include <optional>
#include <string>

#include <lockstep/lockstep.hpp>

namespace lockstep {

struct CommandLine {
  RuntimeOptions runtime;
  TrainingOptions training;
  log::Level log_level = log::Level::info;

  /// The text to print instead of a run, if the command line asked for one: the help or the version.
  std::optional<std::string> answer;
};

/// ConfigError, in one line that names the option and what was expected.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace lockstep
