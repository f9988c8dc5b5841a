// The log: diagnostics on stderr, each line tagged with its rank ("[rank 2] …"). Failures of the job are not log lines:
// the runtime prints them once per job, starting with "lockstep: ".
#pragma once

#include <string_view>

namespace lockstep::log {

enum class Level { trace, debug, info, warning, error, off };

/// Tags all later lines with `rank`. Called once, when the rank is known; until then lines carry no rank.
void set_rank(int rank);

/// The rank given to set_rank, or -1 before that. For messages from layers that do not know ranks.
int rank();

/// Suppresses lines below `level`. The default is `info`.
void set_level(Level level);

/// Parses "trace", "debug", "info", "warning", "error" or "off". Anything else is a ConfigError that lists them.
Level parse_level(std::string_view name);

/// Print one line at their level. LOCAL, from any thread.
void debug(std::string_view line);
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

}  // namespace lockstep::log
