#include "apps/lockstep-bench/step_statistics.hpp"

#include <algorithm>
#include <cmath>

#include "apps/lockstep-bench/timing.hpp"

namespace lockstep::bench {
namespace {

double median_step(const Block& block) {
  std::vector<double> wholes;
  for (const PartTimes& step : block) wholes.push_back(step.whole());
  return median(std::move(wholes));
}

}  // namespace

PartTimes typical_step(const std::vector<Block>& blocks) {
  Block steps;
  for (const Block& block : blocks) steps.insert(steps.end(), block.begin(), block.end());
  std::ranges::sort(steps, {}, &PartTimes::whole);
  const std::size_t quarter = steps.size() / 4, middle = steps.size() - 2 * quarter;
  PartTimes mean{};
  for (std::size_t step = quarter; step < quarter + middle; ++step)
    for (std::size_t part = 0; part < part_count; ++part)
      mean.of_part[part] += steps[step].of_part[part] / static_cast<double>(middle);
  return mean;
}

double ratio_of(const std::vector<Block>& blocks, const std::vector<Block>& others) {
  std::vector<double> ratios;
  for (std::size_t pair = 0; pair < blocks.size(); ++pair)
    ratios.push_back(median_step(blocks[pair]) / median_step(others[pair]));
  return median(std::move(ratios));
}

Interval median_interval(std::vector<double> sample) {
  std::ranges::sort(sample);
  const auto size = static_cast<double>(sample.size());
  // How many lie below the median of the whole: `fewer` or less with probability `tail`.
  std::size_t rank = 0;
  double tail = 0;
  while (true) {
    const auto fewer = static_cast<double>(rank);
    tail +=
        std::exp(std::lgamma(size + 1) - std::lgamma(fewer + 1) - std::lgamma(size - fewer + 1) - size * std::log(2.0));
    if (tail > 0.025) break;
    ++rank;
  }
  rank = std::max<std::size_t>(rank, 1);
  return {sample[rank - 1], median(sample), sample[sample.size() - rank]};
}

}  // namespace lockstep::bench
