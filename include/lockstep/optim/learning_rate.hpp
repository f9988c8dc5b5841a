// The learning rate as a function of the step, and of nothing else: a run that is resumed goes on where it was.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// A linear warm-up to `peak`, and then `peak` for ever, or a cosine from there down to `last`.
struct ScheduleOptions {
  double peak;
  std::int64_t warmup_steps = 0;
  /// Steps of the whole run, the warm-up among them; nothing: no decay.
  std::optional<std::int64_t> decay_steps = {};
  double last = 0;  ///< what the decay ends in
};

/// The learning rate of each step. Steps count from 0.
class LearningRate {
 public:
  /// The same in every step. InvalidArgument unless it is a positive number.
  LearningRate(double rate) : LearningRate{ScheduleOptions{.peak = rate}} {}

  /// InvalidArgument unless the peak is a positive number, `last` one from 0 to the peak, and the warm-up 0 steps or
  /// more, and fewer than those of the decay.
  explicit LearningRate(const ScheduleOptions& options);

  /// With W warm-up steps and a decay over T steps,
  ///   step < W:  peak * (step + 1) / (W + 1), so that no step goes nowhere, and step W is the first at the peak
  ///   step < T:  last + (peak - last) * (1 + cos(pi * (step - W) / (T - W))) / 2
  ///   then:      last
  /// (Loshchilov and Hutter, SGDR, 2017, equation 5, without restarts). InvalidArgument for a negative step.
  double at(std::int64_t step) const;

 private:
  ScheduleOptions options_;
};

}  // namespace lockstep
