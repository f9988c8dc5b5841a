#include "base/deadline.hpp"

#include <utility>

#include "base/start_thread.hpp"

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
  constexpr std::chrono::milliseconds tick{10};
  std::unique_lock lock{mutex_};
  while (!ends_) {
    if (!late_) {
      changed_.wait(lock);
    } else if (left_ > std::chrono::duration<double>{0}) {
      if (changed_.wait_for(lock, tick) == std::cv_status::timeout) left_ -= tick;
    } else {
      std::exchange(late_, nullptr)();
    }
  }
}

}  // namespace lockstep
