// The processes that others have started, as the system shows them.
#pragma once

#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// Those that `process` started, or that were left to it, and that it has not waited for.
std::vector<pid_t> children_of(pid_t process);

/// Its children, theirs, and so on.
std::vector<pid_t> descendants_of(pid_t process);

/// Whether a launcher gave the process a rank, other than that of this process.
bool is_rank(pid_t process);

/// Whether the process has a handler for the signal.
bool handles(pid_t process, int signal);

}  // namespace lockstep::run
