// The command line of a run that is computed again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/lockstep-train/options/command_line.hpp"
#include "apps/lockstep-train/verification.hpp"
#include "apps/options/option_parser.hpp"

namespace lockstep {

/// What is elsewhere by now than it was for a run. Empty: where it was.
struct Elsewhere {
  std::filesystem::path data;
  std::filesystem::path initial_weights;
  std::string network;  ///< RuntimeOptions::network; empty: any
};

/// The options for this, and words, or --run-dir, for the folders of runs.
void add_options(OptionParser& parser, std::vector<std::filesystem::path>& folders, Elsewhere& elsewhere);

/// LOCAL. The options of the run's command, without all that writes, and without what binds them to the ranks, hosts,
/// networks and devices that the run had: what it computes on is the kind of device alone. ConfigError for a command
/// that this version does not take, and for initial weights of a run that began without a file of them.
CommandLine command_of(const RecordedRun& run, const Elsewhere& elsewhere = {});

}  // namespace lockstep
