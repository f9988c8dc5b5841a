// A call that is made after a time, unless it is cancelled first.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace lockstep {

/// Calls `late` after `time`, on a thread of its own, unless it is destroyed first.
class Deadline {
 public:
  Deadline(std::chrono::duration<double> time, std::function<void()> late) {
    // More would overflow the clock, and be over at once.
    constexpr std::chrono::duration<double> longest = std::chrono::hours{24 * 365};
    thread_ = std::thread{[this, time = std::min(time, longest), late = std::move(late)] {
      std::unique_lock lock{mutex_};
      if (!changed_.wait_for(lock, time, [&] { return met_; })) late();
    }};
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline() {
    {
      const std::lock_guard lock{mutex_};
      met_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace lockstep
