// The command line of a run that is computed again.
#pragma once

#include "apps/lockstep-train/options/command_line.hpp"
#include "apps/lockstep-train/verification.hpp"

namespace lockstep {

/// LOCAL. The options of the run's command, without all that writes, and without what binds them to the ranks, hosts,
/// networks and devices that the run had: what it computes on is the kind of device alone. ConfigError for a command
/// that this version does not take.
CommandLine command_of(const RecordedRun& run);

}  // namespace lockstep
