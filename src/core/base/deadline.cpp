#include "core/base/deadline.hpp"

#include <algorithm>
#include <utility>

#include "core/base/start_thread.hpp"

namespace lockstep {

Deadline::Deadline(const char* purpose) : thread_{start_thread(purpose, [this] { run(); })} {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock{mutex_};
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Deadline::set(std::chrono::duration<double> time, std::function<void()> late) {
  {
    const std::lock_guard lock{mutex_};
    left_ = time;
    late_ = std::move(late);
  }
  changed_.notify_one();
}

void Deadline::clear() {
  const std::lock_guard lock{mutex_};
  late_ = nullptr;
}

void Deadline::run() {
  using Clock = std::chrono::steady_clock;
  // A tick counts for at most ten, so that a pause of the process is none of the time.
  constexpr std::chrono::milliseconds tick{10};
  std::unique_lock lock{mutex_};
  while (!ends_) {
    if (!late_) {
      changed_.wait(lock);
    } else if (left_ > std::chrono::duration<double>{0}) {
      const Clock::time_point before = Clock::now();
      if (changed_.wait_for(lock, tick) == std::cv_status::timeout)
        left_ -= std::min<std::chrono::duration<double>>(Clock::now() - before, 10 * tick);
    } else {
      std::exchange(late_, nullptr)();
    }
  }
}

}  // namespace lockstep
