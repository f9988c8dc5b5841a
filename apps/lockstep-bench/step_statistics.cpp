#include "apps/lockstep-bench/step_statistics.hpp"

#include <algorithm>

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

}  // namespace lockstep::bench
