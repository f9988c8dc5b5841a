#include "core/base/awake_clock.hpp"

#include <mutex>

#include "core/base/counted_time.hpp"

namespace lockstep {

AwakeClock::time_point AwakeClock::now() {
  static std::mutex mutex;
  const std::lock_guard lock{mutex};
  const CountedTime::Seconds steady = std::chrono::steady_clock::now().time_since_epoch();
  static CountedTime time{steady, std::chrono::seconds{1}};
  return time_point{std::chrono::duration_cast<duration>(time.look(steady))};
}

}  // namespace lockstep
