// How long a thread had to wait for a processor.
#pragma once

#include <chrono>

namespace lockstep {

/// How long the calling thread has been ready to run while others had the processor, since it began: Linux's run delay
/// (Documentation/scheduler/sched-stats). 0 where the kernel does not count it. LOCAL; reads a file of the kernel's.
std::chrono::nanoseconds run_delay();

}  // namespace lockstep
