// The limit of a process's CPU time (ulimit -t).
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// From here to the end of the process, SIGXCPU does not end it, but is remembered. Where the kernel would kill the
/// process without that signal, since the soft limit is not below the hard one, lowers the soft one by up to 2 s. A
/// program that handles the signal keeps it. Call it on the thread that computes, whose stack the handler leaves alone.
void catch_cpu_limit();

/// What the signal says once it has come: "has used up its CPU time, 60 s (SIGXCPU, ulimit -t)", with the limit that
/// this process found. Without one, the signal is a scheduler's.
std::optional<std::string> cpu_limit_reached();

}  // namespace lockstep
