// A stack for people to read. Reads libraries' tables, so it may block where a file system does.
#pragma once

#include <string>

#include "core/watch/question_signal.hpp"

namespace lockstep {

/// One line for each frame, the innermost first, with the function if it has a name that can be found, and for
/// addr2line the file and the offset in it:
///   #0  pause  (libc.so.6+0xd0d84)
///   #1  lockstep::InjectedFault::strike(int, long, …) const  (lockstep-train+0x2b474d)
std::string describe(const RawStack& stack);

/// A thread of this process, as the kernel sees it: "state D (uninterruptible), in nfs_wait_bit_killable".
std::string describe_thread(int thread);

/// One line for each thread of this process but `except`, up to a hundred: number, name, and what the kernel says.
std::string describe_threads(int except);

}  // namespace lockstep
