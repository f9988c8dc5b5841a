// A call that is made after a time, unless it is cancelled first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/base/countdown.hpp"
#include "core/base/parts.hpp"

namespace lockstep {

/// A thread that waits for what may come too late. It starts with the object and lives as long, so that setting a
/// deadline needs neither a thread nor memory: the end of a job must not fail for want of them. Time counts in ticks,
/// so a process that is stopped and continued has missed nothing.
class LOCKSTEP_PARTS_API Deadline {
 public:
  /// Error if there is no thread for it. `purpose` says for what, as in start_thread.
  explicit Deadline(const char* purpose);
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline();

  /// Calls `late` after `time`, on the thread, unless `clear` or another `set` comes first. `late` must not throw.
  void set(std::chrono::duration<double> time, std::function<void()> late);

  /// Forgets what was set. Blocks while a call of it is running.
  void clear();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Countdown countdown_;
  bool ends_ = false;
  std::thread thread_;  ///< the last, as it uses the others
};

}  // namespace lockstep
