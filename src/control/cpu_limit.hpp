// The limit of a process's CPU time (ulimit -t).
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// From here to the end of the process, SIGXCPU does not end it, but is remembered. Where the kernel would kill the
/// process without that signal, since the soft limit is not below the hard one, lowers the soft one by up to 2 s. A
/// program that handles the signal keeps it. Call it on the thread that computes, whose stack the handler leaves alone.
void catch_cpu_limit();

/// The limit in seconds, as this process found it, once the signal has come.
std::optional<std::uint64_t> cpu_limit_reached();

}  // namespace lockstep
