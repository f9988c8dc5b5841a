// A recorded run that simulated ranks compute again.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "apps/lockstep-train/recorded_command.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"

namespace lockstep::test {

/// The run in `folder`. Its description has the command of this program.
inline RecordedRun run_in(const std::filesystem::path& folder, const Arguments& arguments) {
  RecordedRun run = read_run(folder);
  run.command = Arguments{"lockstep-train"} + arguments;
  return run;
}

inline VerificationResult verify(sim::Options job, const RecordedRun& run, const std::optional<Range>& steps = {},
                                 const Elsewhere& elsewhere = {}) {
  const QuietLog quiet;
  VerificationResult result;
  const CommandLine line = command_of(run, elsewhere);
  job.report = [](std::string_view) {};
  job.reductions = line.runtime.reductions;
  sim::run(std::move(job), [&](Strategy& strategy, int rank) {
    Trainer trainer{strategy, "cpu", line.training};
    const VerificationResult own = std::move(trainer).verify(run, steps);
    if (rank == 0) result = own;
  });
  return result;
}

inline VerificationResult verify(int ranks, const RecordedRun& run, const std::optional<Range>& steps = {},
                                 const Elsewhere& elsewhere = {}) {
  return verify(sim::Options{.ranks = ranks}, run, steps, elsewhere);
}

}  // namespace lockstep::test
