// The processes that others have started, as the system shows them.
#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// The folder of this process, or of one that it has started, in /proc, which may be an outer namespace's: `unshare
/// --pid` alone gives no other. One that does not exist if the process has ended.
std::filesystem::path folder_of(pid_t process);

/// Those that `process` started, or that were left to it, and that it has not waited for.
std::vector<pid_t> children_of(pid_t process);

/// Its children, theirs, and so on.
std::vector<pid_t> descendants_of(pid_t process);

/// Whether a launcher gave the process a rank, other than that of this process.
bool is_rank(pid_t process);

/// Whether the process has a handler for the signal.
bool handles(pid_t process, int signal);

/// Sends it a signal if `condition` holds of it. Another process that has got its number meanwhile gets none, where the
/// system has descriptors of processes.
bool signal_if(pid_t process, int signal, const std::function<bool()>& condition);

}  // namespace lockstep::run
