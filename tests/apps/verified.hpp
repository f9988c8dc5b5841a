// A recorded run that simulated ranks compute again.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

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

inline VerificationResult verify(int ranks, const RecordedRun& run, const std::optional<Range>& steps = {},
                                 const Elsewhere& elsewhere = {}) {
  const QuietLog quiet;
  VerificationResult result;
  sim::run({.ranks = ranks, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
    Trainer trainer{strategy, "cpu", command_of(run, elsewhere).training};
    const VerificationResult own = std::move(trainer).verify(run, steps);
    if (rank == 0) result = own;
  });
  return result;
}

}  // namespace lockstep::test
