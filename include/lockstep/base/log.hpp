// The log: diagnostics on stderr, each line tagged with its rank ("[rank 2] …"). Failures of the job are not log lines:
// the runtime prints them once per job, starting with "lockstep: ".
#pragma once

#include <string_view>

namespace lockstep::log {

/// Each prints one line at the level of its name. LOCAL, from any thread.
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

}  // namespace lockstep::log
