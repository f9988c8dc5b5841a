// The learning rate as a function of the step alone, so that a resumed run continues where it was.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/core/base/export.hpp>

namespace lockstep {

/// The learning rate of each step. Steps count from 0.
class LOCKSTEP_API LearningRate {
 public:
  /// Linear warm-up to `peak`, then constant, or cosine decay to `last`.
  struct Schedule {
    double peak;
    std::int64_t warmup_steps = 0;
    /// Steps of the whole run, including warm-up. If empty, no decay.
    std::optional<std::int64_t> decay_steps = {};
    double last = 0;  ///< where the decay ends
  };

  /// The same at every step. InvalidArgument unless it is positive and finite.
  LearningRate(double rate) : LearningRate{Schedule{.peak = rate}} {}

  /// InvalidArgument unless `peak` is positive and finite, `last` is from 0 to `peak`, `warmup_steps` is 0 or more, and
  /// `decay_steps`, if given, is larger.
  explicit LearningRate(const Schedule& options);

  /// With W warm-up steps and a decay over T steps,
  ///   step < W:  peak * (step + 1) / (W + 1), so that no step is wasted, and step W is the first at the peak
  ///   step < T:  last + (peak - last) * (1 + cos(pi * (step - W) / (T - W))) / 2
  ///   then:      last
  /// (Loshchilov and Hutter, SGDR, 2017, equation 5, without restarts). Without decay, `peak` from step W on.
  /// InvalidArgument for a negative step.
  double at(std::int64_t step) const;

  /// With a cosine of the same bits on every machine, for optimizers with the option `portable`.
  double portable_at(std::int64_t step) const;

 private:
  double at(std::int64_t step, double (*cosine_of_pi_times)(double)) const;

  Schedule options_;
};

}  // namespace lockstep
