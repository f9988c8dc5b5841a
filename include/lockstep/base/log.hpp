// The log: diagnostics on stderr, each line tagged with its rank ("[rank 2] …"). Failures of the job are not log lines:
// the runtime prints them once per job, starting with "lockstep: ".
#pragma once

#include <string_view>

namespace lockstep::log {

enum class Level { trace, debug, info, warning, error, off };

/// Suppresses lines below `level`. The default is `info`.
void set_level(Level level);

/// Each prints one line at the level of its name. LOCAL, from any thread.
void debug(std::string_view line);
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

}  // namespace lockstep::log
