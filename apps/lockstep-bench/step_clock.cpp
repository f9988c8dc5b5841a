#include "apps/lockstep-bench/step_clock.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::bench {

StepClock::StepClock(std::function<Time()> now) : lockstep::PartClock<Part, part_count>{Part::data, std::move(now)} {}

PartTimes StepClock::lap() {
  PartTimes times;
  std::ranges::transform(lockstep::PartClock<Part, part_count>::lap(Part::data).of_part, times.of_part.begin(),
                         [](auto time) { return std::chrono::duration<double, std::milli>{time}.count(); });
  return times;
}

}  // namespace lockstep::bench
