#include "apps/lockstep-train/tasks/optimizer_choice.hpp"

#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

namespace lockstep {
namespace {

LearningRate learning_rate_of(const TrainingOptions& options, std::int64_t steps) {
  if (options.warmup_steps >= steps)
    throw ConfigError{fmt::format("--warmup-steps {}: the run has {} step{}; expected fewer to warm up in",
                                  options.warmup_steps, steps, steps == 1 ? "" : "s")};
  const std::optional<std::int64_t> decay_steps =
      options.schedule == ScheduleKind::cosine ? std::optional{steps} : std::nullopt;
  return LearningRate{
      {.peak = *options.learning_rate, .warmup_steps = options.warmup_steps, .decay_steps = decay_steps}};
}

}  // namespace

int slots_of(OptimizerKind optimizer) {
  switch (optimizer) {
    case OptimizerKind::sgd: return 0;
    case OptimizerKind::momentum: return 1;
    case OptimizerKind::adamw: return 2;
  }
  throw InvalidArgument{fmt::format("{} is no kind of optimizer", static_cast<int>(optimizer))};
}

std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& options, std::int64_t steps,
                                          const ops::Kernels& kernels) {
  const LearningRate learning_rate = learning_rate_of(options, steps);
  if (options.optimizer == OptimizerKind::adamw)
    return std::make_unique<AdamW>(AdamW::Options{.learning_rate = learning_rate,
                                                  .weight_decay = options.weight_decay,
                                                  .clip_norm = options.clip_norm,
                                                  .portable = kernels.is_portable()});
  return std::make_unique<Sgd>(
      Sgd::Options{.learning_rate = learning_rate,
                   .momentum = options.optimizer == OptimizerKind::momentum ? options.momentum : 0,
                   .weight_decay = options.weight_decay,
                   .clip_norm = options.clip_norm,
                   .portable = kernels.is_portable()});
}

}  // namespace lockstep
