// Starting a program below this one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// What a child writes to. It reads nothing.
struct ChildStreams {
  int out;
  int err;
};

/// How a child's environment differs from that of this process.
struct ChildEnvironment {
  std::vector<std::string> without = {};  ///< names of variables
  std::vector<std::string> with = {};     ///< "NAME=value", for variables that this process does not have
};

/// Starts a command, found as a shell finds it, in a process group of its own. If this process ends in any way, the
/// child gets SIGTERM: call it on the thread that lives longest, since the kernel sends that when the thread ends.
/// Throws Error if the command cannot be run.
pid_t start_child(const std::vector<std::string>& command, const ChildEnvironment& environment, ChildStreams streams);

/// How a child that was started here has ended, as waitpid has it; nothing while it runs. Its number is its own until
/// then. Once a child.
std::optional<int> take_end(pid_t child);

/// Children that were not started here: those who started them have ended.
std::vector<pid_t> orphans();

/// From here on, a child that cannot be ended counts as one that was started here: nobody waits for it.
void leave_alone(pid_t child);

/// Waits for the orphans that have ended, so that no zombies gather in a long job.
void reap_orphans();

/// What a shell calls the status of a process that has ended: its exit code, or 128 + the signal that ended it.
int code_of(int status);

}  // namespace lockstep::run
