// What lockstep-train does between its command line and its output.
#pragma once

#include <string>

#include <lockstep/training.hpp>

#include "apps/lockstep-train/options/command_line.hpp"

namespace lockstep {

/// COLL, blocking. Trains, evaluates or predicts, as the command line asks. Returns what the chief is to write to
/// stdout. StoppedError on all ranks if the training ended early because a rank was asked to.
std::string run_job(Strategy& strategy, const std::string& device, const CommandLine& line);

}  // namespace lockstep
