// Statistics of the measured steps.
#pragma once

#include <vector>

#include "apps/lockstep-bench/step_clock.hpp"

namespace lockstep::bench {

/// One or more consecutive steps.
using Block = std::vector<PartTimes>;

/// The mean of the middle half of all steps by length, rounded up. The machine's other work affects it as little as a
/// median, but its parts add up to its whole.
PartTimes typical_step(const std::vector<Block>& blocks);

/// How much longer a step of `blocks` is than one of `others`, which took turns. This is the median over the pairs of
/// the ratio of their median steps, so that drift from pair to pair affects both terms alike.
double ratio_of(const std::vector<Block>& blocks, const std::vector<Block>& others);

}  // namespace lockstep::bench
