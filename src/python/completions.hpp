// What ends calls for which nobody waits.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "python/call.hpp"

namespace lockstep::python {

/// Finishes calls once their tasks have ended, so that their futures complete while the program does something else.
/// Callbacks of futures may wait for other calls: before a thread finishes one, another takes over the watch, and a new
/// one is started if there is none. It must not be destroyed after the first call.
class Completions {
 public:
  Completions() = default;
  Completions(const Completions&) = delete;

  /// LOCAL. From here on the call ends by itself.
  void add(std::shared_ptr<Call> call);

  /// LOCAL. A call may have ended.
  void look();

  /// LOCAL, blocking, without Python's lock. Waits until all calls have been finished, a while. No thread calls into
  /// Python afterwards. Returns what made a call fail that nobody has waited for; empty if there is none.
  std::string stop();

 private:
  void go_on();
  void watch(std::unique_lock<std::mutex>& lock);
  bool find_ended(std::unique_lock<std::mutex>& lock);
  std::shared_ptr<Call> longest_watched_wait() const;
  void show_wait(std::shared_ptr<Call> call, std::unique_lock<std::mutex>& lock);
  void let_another_watch();
  void note_failure(std::shared_ptr<Call> call);
  bool has_work() const { return !under_way_.empty() || !ended_.empty(); }

  std::mutex mutex_;
  std::condition_variable changed_, added_;
  // All under `mutex_`.
  std::vector<std::shared_ptr<Call>> under_way_;
  std::deque<std::shared_ptr<Call>> ended_;     ///< to be finished
  std::vector<std::shared_ptr<Call>> unheard_;  ///< have failed, and nobody had asked for them then
  bool is_watched_ = false;
  std::chrono::steady_clock::time_point news_;  ///< when the last call came
  std::chrono::microseconds pause_{};           ///< between two looks
  bool is_stopped_ = false;
  int idle_ = 0;       ///< threads
  int finishing_ = 0;  ///< threads
};

}  // namespace lockstep::python
