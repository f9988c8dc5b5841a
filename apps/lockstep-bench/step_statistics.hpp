// Statistics of the measured steps.
#pragma once

#include <cstdint>
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

struct Interval {
  double low, median, high;
};

/// The median of a sample, and an interval that holds the population's median with a confidence of at least 95%,
/// whatever the distribution: two values at equal rank from either end, by the binomial distribution. The sample has at
/// least `fewest_for_interval` values.
Interval median_interval(std::vector<double> sample);
inline constexpr std::int64_t fewest_for_interval = 6;

}  // namespace lockstep::bench
