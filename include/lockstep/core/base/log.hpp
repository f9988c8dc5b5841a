// The log: diagnostics on stderr, each line tagged with its rank ("[rank 2] …"). Failures of the job are not log lines:
// the runtime prints them once per job, starting with "lockstep: ".
#pragma once

#include <string_view>

#include <lockstep/core/base/export.hpp>

namespace lockstep::log {

/// Each prints one line at the level of its name. LOCAL, from any thread.
LOCKSTEP_API void info(std::string_view line);
LOCKSTEP_API void warning(std::string_view line);
LOCKSTEP_API void error(std::string_view line);

}  // namespace lockstep::log
