// Signals that are remembered, and do nothing else to the process, from when they are caught to its end. Call the
// functions that catch them on the thread that computes, whose stack the handlers leave alone.
#pragma once

#include <optional>
#include <string>

namespace lockstep {

/// A user or a scheduler sends it to end the job early. One that comes after the job must not look like a failure.
void catch_stop_signal(int signal);

/// Whether such a signal has come.
bool stop_signal_has_come();

/// SIGXCPU, which says that the process has used up its CPU time (ulimit -t). Where the kernel would kill the process
/// without that signal, since the soft limit is not below the hard one, lowers the soft one by up to 2 s. A program
/// that handles the signal keeps it.
void catch_cpu_limit();

/// What the signal says once it has come: "has used up its CPU time, 60 s (SIGXCPU, ulimit -t)", with the limit that
/// this process found. Without one, the signal is a scheduler's.
std::optional<std::string> cpu_limit_reached();

}  // namespace lockstep
