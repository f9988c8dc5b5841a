#include "core/control/job_time.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

/// Both numbers belong together: whoever reads them reads `version` before and after.
std::atomic<std::uint64_t> version{0};       ///< odd while they change
std::atomic<nanoseconds::rep> looked_at{0};  ///< 0: nobody looks
std::atomic<nanoseconds::rep> paused{0};     ///< all pauses so far
std::mutex writers;

void change(nanoseconds::rep now, nanoseconds::rep pause) {
  ++version;
  looked_at = now;
  paused = paused + pause;
  ++version;
}

nanoseconds::rep count_of(JobTime::Time time) {
  return nanoseconds{time.time_since_epoch()}.count();
}

}  // namespace

JobTime::Time JobTime::now() {
  while (true) {
    const std::uint64_t before = version;
    const nanoseconds::rep looked = looked_at;
    const nanoseconds::rep away = paused;
    const nanoseconds::rep now = count_of(std::chrono::steady_clock::now());
    if (before % 2 != 0 || version != before) continue;
    const nanoseconds::rep last = looked + nanoseconds{longest_look}.count();
    return Time{nanoseconds{(looked == 0 ? now : std::min(now, last)) - away}};
  }
}

void JobTime::look(Time now, bool was_paused) {
  const std::lock_guard lock{writers};
  const nanoseconds::rep at = count_of(now);
  const nanoseconds::rep over = looked_at == 0 ? 0 : at - looked_at - nanoseconds{longest_look}.count();
  change(at, was_paused ? std::max<nanoseconds::rep>(over, 0) : 0);
}

void JobTime::end() {
  const std::lock_guard lock{writers};
  change(0, 0);
}

}  // namespace lockstep
