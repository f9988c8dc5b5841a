// The `main` of a program without ranks.
#pragma once

#include <functional>
#include <string_view>

namespace lockstep {

/// Prints `what` on stderr, as one line that begins with "lockstep: error: ".
void complain(std::string_view what);

/// Returns the exit code: that of `work`, or after a line about what it throws 2 for a ConfigError, which is wrong
/// usage, and 1 for anything else. Leaves SIGPIPE as it is by default: `lockstep-inspect run1 | head` ends the program
/// like other tools, even if what started it ignores the signal.
int run_tool(const std::function<int()>& work);

}  // namespace lockstep
