// How far the clock of a rank's host is from that of rank 0's, by messages that the ranks exchange anyway.
#pragma once

#include <chrono>
#include <span>

#include "core/base/parts.hpp"

namespace lockstep {

class ControlChannel;

/// An exchange in which every rank has heard of all others before it is over: when this rank came to it, and when it
/// was over here, by the clock of its host.
struct Exchange {
  std::chrono::nanoseconds begin;
  std::chrono::nanoseconds end;
};

/// What to add to the times of a clock for those of another, and by how much that may be wrong.
struct ClockOffset {
  std::chrono::nanoseconds offset{0};
  std::chrono::nanoseconds error{0};
};

/// From the same exchanges on two ranks. No exchange ends anywhere before all ranks have come to it, so each bounds the
/// offset from both sides; what all of them allow is the result, and half of its width the error. The method is that of
/// Marzullo and Owicki, "Maintaining the Time in a Distributed System", PODC 1983.
ClockOffset clock_offset(std::span<const Exchange> of_first, std::span<const Exchange> own);

/// COLL, blocking. This rank's offset from rank 0's clock, by a few dozen exchanges.
LOCKSTEP_PARTS_API ClockOffset find_clock_offset(ControlChannel& channel);

}  // namespace lockstep
