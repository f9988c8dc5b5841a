// The `main` of a program without ranks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

/// lockstep::version() of the program of this name, which it begins with.
std::string version_of(const std::string& program);

/// Prints `what` on stderr, as one line that begins with "lockstep: error: ".
void complain(std::string_view what);

/// Returns the exit code of `work`. If that throws, prints the error, and returns 2 for a ConfigError (wrong usage), 7
/// for a FileError that is not about the path, such as a full disk, otherwise 1. A reader that goes away, as in
/// `lockstep-inspect run1 | head`, is no failure.
int run_tool(const std::function<int()>& work);

}  // namespace lockstep
