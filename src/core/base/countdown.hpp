// A call that is due after a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

namespace lockstep {

/// Whoever owns it lets time pass, from a thread of its own, and guards it by a lock.
class Countdown {
 public:
  using Seconds = std::chrono::duration<double>;

  /// Calls `late` once `time` has passed, unless another `set` or `clear` comes first. `late` must not throw.
  void set(Seconds time, std::function<void()> late) {
    left_ = time;
    late_ = std::move(late);
  }

  void clear() { late_ = nullptr; }

  bool is_set() const { return late_ != nullptr; }

  /// `time` has passed since the last call. More than `longest_look` was a pause of the process, which does not count.
  void pass(Seconds time) {
    left_ -= std::min(time, longest_look);
    if (late_ && left_ <= Seconds{0}) std::exchange(late_, nullptr)();
  }

 private:
  static constexpr Seconds longest_look{0.1};

  std::function<void()> late_;  ///< empty if nothing is set
  Seconds left_{0};
};

}  // namespace lockstep
