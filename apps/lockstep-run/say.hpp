// What lockstep-run tells its user.
#pragma once

#include <string>

namespace lockstep::run {

/// Writes one line to stderr.
void say(const std::string& line);

}  // namespace lockstep::run
