// Starting a program below this one.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep::run {

/// What a child writes to. It reads nothing.
struct ChildStreams {
  int out;
  int err;
};

/// Starts a command, found as a shell finds it, in a process group of its own. `without` names the variables of the
/// environment that it does not get. If this process ends in any way, the child gets SIGTERM: call it on the thread
/// that lives longest, since the kernel sends that when the thread ends. Throws Error if the command cannot be run.
pid_t start_child(const std::vector<std::string>& command, const std::vector<std::string>& without,
                  ChildStreams streams);

/// What a shell calls the status of a process that has ended: its exit code, or 128 + the signal that ended it.
int code_of(int status);

}  // namespace lockstep::run
