// lockstep-bench's command line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include <lockstep/runtime/runtime.hpp>

#include "apps/lockstep-bench/all_reduce.hpp"
#include "apps/lockstep-bench/merge_call.hpp"
#include "apps/lockstep-bench/step.hpp"
#include "apps/lockstep-bench/watchdog.hpp"

namespace lockstep::bench {

struct CommandLine {
  RuntimeOptions runtime;

  /// Which benchmark, and how.
  std::variant<AllReduceOptions, MergeCallOptions, StepOptions, WatchdogOptions> benchmark;

  /// Where the JSON goes; empty for none.
  std::filesystem::path json;

  /// What the command line asked to be printed instead of a run: the help, or the version.
  std::optional<std::string> answer;
};

/// ConfigError, in one line that names the option and what was expected.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace lockstep::bench
