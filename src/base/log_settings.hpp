// What the log is told by those who start a process.
#pragma once

#include <string_view>

#include <lockstep/base/log.hpp>

namespace lockstep::log {

/// Tags all later lines with `rank`. Called once, when the rank is known; until then lines carry no rank.
void set_rank(int rank);

/// The rank given to set_rank, or -1 before that. For messages from layers that do not know ranks.
int rank();

/// Parses "trace", "debug", "info", "warning", "error" or "off". Anything else is a ConfigError that lists them.
Level parse_level(std::string_view name);

}  // namespace lockstep::log
