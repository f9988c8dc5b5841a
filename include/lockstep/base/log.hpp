// The log: diagnostics on stderr, each line tagged with its rank ("[rank 2] …"). Failures of the job are not log
// lines: they are printed once per job by the runtime, and start with "lockstep: ".
#pragma once

#include <string_view>

namespace lockstep::log {

enum class Level { trace, debug, info, warning, error, off };

/// Called once, when the rank is known. Before it, lines carry no rank.
void set_rank(int rank);

/// What set_rank was given; -1 before. For messages of layers that know no ranks.
int rank();

/// Lines below `level` are not printed. The default is `info`.
void set_level(Level level);

/// "trace", "debug", "info", "warning", "error" or "off"; ConfigError that lists them for anything else.
Level parse_level(std::string_view name);

void debug(std::string_view line);
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

}  // namespace lockstep::log
