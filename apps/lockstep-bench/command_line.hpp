// lockstep-bench's command line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/all_reduce.hpp"
#include "apps/lockstep-bench/exact_sum.hpp"
#include "apps/lockstep-bench/input.hpp"
#include "apps/lockstep-bench/merge_call.hpp"
#include "apps/lockstep-bench/network.hpp"
#include "apps/lockstep-bench/predict.hpp"
#include "apps/lockstep-bench/product_rates.hpp"
#include "apps/lockstep-bench/requests.hpp"
#include "apps/lockstep-bench/scale.hpp"
#include "apps/lockstep-bench/step.hpp"
#include "apps/lockstep-bench/watchdog.hpp"

namespace lockstep::bench {

struct CommandLine {
  RuntimeOptions runtime;

  /// The benchmark to run, and its options.
  std::variant<AllReduceOptions, MergeCallOptions, RequestOptions, ExactSumOptions, NetworkOptions, StepOptions,
               ArithmeticOptions, PredictOptions, InputOptions, WatchdogOptions, ScaleOptions>
      benchmark;

  /// Where to write the JSON. If empty, nowhere.
  std::filesystem::path json;

  /// The text to print instead of a run, if the command line asked for one: the help or the version.
  std::optional<std::string> answer;
};

/// ConfigError, in one line that names the option and what was expected.
CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace lockstep::bench
