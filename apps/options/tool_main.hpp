// The `main` of a program without ranks.
#pragma once

#include <functional>
#include <string_view>

namespace lockstep {

/// Prints `what` on stderr, as one line that begins with "lockstep: error: ".
void complain(std::string_view what);

/// Returns the exit code of `work`. If that throws, prints the error, and returns 2 for a ConfigError (wrong usage),
/// otherwise 1. Resets SIGPIPE to its default, so that `lockstep-inspect run1 | head` ends the program like other
/// tools, even if what started it ignores the signal.
int run_tool(const std::function<int()>& work);

}  // namespace lockstep
