#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/learning_rate.hpp>

#include "core/base/portable_functions.hpp"

namespace lockstep {

LearningRate::LearningRate(const Schedule& options) : options_{options} {
  // Written so that NaN fails.
  if (!(options.peak > 0) || std::isinf(options.peak))
    throw InvalidArgument{fmt::format("the learning rate is {}; expected a positive number", options.peak)};
  if (!(options.last >= 0 && options.last <= options.peak))
    throw InvalidArgument{fmt::format("the learning rate decays from {} to {}; expected a number from 0 to {}",
                                      options.peak, options.last, options.peak)};
  if (options.warmup_steps < 0)
    throw InvalidArgument{fmt::format("warm-up steps: {}; expected 0 or more", options.warmup_steps)};
  if (options.decay_steps && *options.decay_steps <= options.warmup_steps)
    throw InvalidArgument{fmt::format("warm-up steps: {} of {}; expected fewer than there are", options.warmup_steps,
                                      *options.decay_steps)};
}

double LearningRate::at(std::int64_t step) const {
  return at(step, [](double x) { return std::cos(std::numbers::pi * x); });
}

double LearningRate::portable_at(std::int64_t step) const {
  return at(step, portable::cos_pi);
}

double LearningRate::at(std::int64_t step, double (*cosine_of_pi_times)(double)) const {
  if (step < 0) throw InvalidArgument{fmt::format("the learning rate of step {}; expected 0 or more", step)};
  const auto [peak, warmup_steps, decay_steps, last] = options_;
  const auto warmup = static_cast<double>(warmup_steps);
  const auto index = static_cast<double>(step);
  if (step < warmup_steps) return peak * (index + 1) / (warmup + 1);
  if (!decay_steps) return peak;
  if (step >= *decay_steps) return last;
  const double progress = (index - warmup) / (static_cast<double>(*decay_steps) - warmup);
  return last + (peak - last) * (1 + cosine_of_pi_times(progress)) / 2;
}

}  // namespace lockstep
