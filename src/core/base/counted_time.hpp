// Time as a loop counts it that looks around again and again.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace lockstep {

/// How long a loop has waited for something. Between two looks at most `longest_look` counts: in a longer time the
/// process was stopped, suspended with its job, or without a processor, and that is nobody's lateness.
class CountedTime {
 public:
  using Seconds = std::chrono::duration<double>;

  CountedTime(Seconds now, Seconds longest_look) : looked_{now}, longest_look_{longest_look} {}

  /// How much has passed, at `now`.
  Seconds look(Seconds now) {
    passed_ += std::clamp(now - std::exchange(looked_, now), Seconds{0}, longest_look_);
    return passed_;
  }

  /// From here on it counts from zero again.
  void begin_again() { passed_ = Seconds{0}; }

 private:
  Seconds looked_;
  Seconds longest_look_;
  Seconds passed_{0};
};

}  // namespace lockstep
