#include "apps/lockstep-bench/part_clock.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::bench {

PartClock::PartClock(std::function<Time()> now) : lockstep::PartClock<Part, part_count>{Part::data, std::move(now)} {}

PartTimes PartClock::lap() {
  enter(Part::data);
  PartTimes times;
  std::ranges::transform(lockstep::PartClock<Part, part_count>::lap().of_part, times.of_part.begin(),
                         [](auto time) { return std::chrono::duration<double, std::milli>{time}.count(); });
  return times;
}

}  // namespace lockstep::bench
