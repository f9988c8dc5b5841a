// From the steps that were measured to what is said of them.
#pragma once

#include <vector>

#include "apps/lockstep-bench/part_clock.hpp"

namespace lockstep::bench {

/// Steps behind each other, of one or more.
using Block = std::vector<PartTimes>;

/// The mean of the middle half of all steps by length, rounded up: as little touched by the machine's other work as a
/// median, but its parts add up to its whole.
PartTimes typical_step(const std::vector<Block>& blocks);

/// How much longer a step of `blocks` is than one of `others`, measured by turns: the median over the pairs of the
/// ratio of their median steps, so that what drifts from pair to pair is in both of its terms.
double ratio_of(const std::vector<Block>& blocks, const std::vector<Block>& others);

}  // namespace lockstep::bench
