// The log's levels, and what it is told by those who start a process.
#pragma once

#include <string_view>

#include <lockstep/core/base/log.hpp>

#include "core/base/parts.hpp"

namespace lockstep::log {

enum class Level { trace, debug, info, warning, error, off };

/// Suppresses lines below `level`. The default is `info`.
void set_level(Level level);

/// Prints one line, at the level of its name. LOCAL, from any thread.
LOCKSTEP_PARTS_API void debug(std::string_view line);

/// Tags all later lines with `rank`. Called when the rank is known; until then, and after -1, lines carry no rank.
/// `chief` is the rank that says what is said once for the job.
void set_rank(int rank, int chief = 0);

/// The rank given to set_rank, or -1 before that. For messages from layers that do not know ranks.
LOCKSTEP_PARTS_API int rank();

/// Whether this rank is to say what is said once for the job.
LOCKSTEP_PARTS_API bool is_chief();

/// Parses "trace", "debug", "info", "warning", "error" or "off". Anything else is a ConfigError that lists them.
Level parse_level(std::string_view name);

}  // namespace lockstep::log
