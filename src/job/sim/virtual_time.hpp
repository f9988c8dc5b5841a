// How simulated ranks spend time, for the library's own tests.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep::sim {

/// Virtual time: a point, counted from the start of the job, or a length.
using Time = std::chrono::nanoseconds;

/// Lets other simulated ranks run. Does nothing outside a simulation, so a trainer may call it anywhere.
void yield();

/// Returns after `length` of virtual time; others run meanwhile. For simulated ranks; ContextError elsewhere.
void sleep(Time length);

/// The virtual time since the start of the job. For simulated ranks; ContextError elsewhere.
Time now();

/// The number of scheduling points that this rank has passed: one when it comes to a call that meets other ranks or
/// moves their data, and one more if it has to wait for them there. For simulated ranks; ContextError elsewhere.
std::uint64_t points();

}  // namespace lockstep::sim
