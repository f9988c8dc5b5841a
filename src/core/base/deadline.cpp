#include "core/base/deadline.hpp"

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
    countdown_.set(time, std::move(late));
  }
  changed_.notify_one();
}

void Deadline::clear() {
  const std::lock_guard lock{mutex_};
  countdown_.clear();
}

void Deadline::run() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds tick{10};
  std::unique_lock lock{mutex_};
  while (!ends_) {
    if (!countdown_.is_set()) {
      changed_.wait(lock);
      continue;
    }
    const Clock::time_point before = Clock::now();
    if (changed_.wait_for(lock, tick) == std::cv_status::timeout) countdown_.pass(Clock::now() - before);
  }
}

}  // namespace lockstep
