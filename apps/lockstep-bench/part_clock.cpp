#include "apps/lockstep-bench/part_clock.hpp"

#include <utility>

namespace lockstep::bench {

PartClock::PartClock(std::function<Time()> now) : now_{std::move(now)}, since_{now_()} {}

void PartClock::enter(Part part) {
  const Time now = now_();
  times_.of(std::exchange(current_, part)) +=
      std::chrono::duration<double, std::milli>{now - std::exchange(since_, now)}.count();
}

PartTimes PartClock::lap() {
  enter(Part::data);
  return std::exchange(times_, {});
}

}  // namespace lockstep::bench
