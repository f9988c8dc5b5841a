// Processes that become children of lockstep-run and are no job's.
#pragma once

#include <optional>

#include <sys/types.h>

namespace lockstep::run {

/// Where others' processes are children of this one, or may become its children, a child goes on in its place: a shell
/// that has started programs became this program; it is process 1 of a container, or another one to which orphans are
/// left. The child gets what its own processes leave behind, whatever they do: a new session, two forks, an empty
/// environment. Others' are left to this process. So all children that the one that goes on has not started itself
/// are orphans of its jobs.
///
/// This process then passes on the signals that Signals takes, waits for all of its children, and ends as the child
/// ends. If it is killed, so is the child. To be called while there is one thread. Returns in the process that goes on,
/// with the process that passes on signals, if there is one.
std::optional<pid_t> part_from_strangers();

}  // namespace lockstep::run
