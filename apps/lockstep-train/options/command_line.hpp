// lockstep-train's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/lockstep.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "core/base/log_settings.hpp"

namespace lockstep {

enum class Purpose : std::uint8_t { training, evaluation, prediction };

struct CommandLine {
  Purpose purpose = Purpose::training;
  RuntimeOptions runtime;
  TrainingOptions training;
  log::Level log_level = log::Level::info;

  /// The text to print instead of a run, if the command line asked for one: the help or the version.
  std::optional<std::string> answer;
};

/// ConfigError, in one line that names the option and what was expected.
CommandLine parse_command_line(int argc, const char* const* argv);

/// The words of a command that parse_command_line takes, without the option `name` and its value.
std::vector<std::string> without_option(const std::vector<std::string>& words, const std::string& name);

}  // namespace lockstep
