#include "models/input/batch_schedule.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {

BatchSchedule::BatchSchedule(std::int64_t samples, std::int64_t global_batch)
    : samples_{samples}, global_batch_{global_batch} {
  if (samples < 1) throw InvalidArgument{fmt::format("the dataset has {} samples; expected 1 or more", samples)};
  if (global_batch < 1) throw InvalidArgument{fmt::format("the global batch is {}; expected 1 or more", global_batch)};
  steps_per_epoch_ = samples / global_batch + (samples % global_batch != 0);
}

std::int64_t BatchSchedule::largest_batch() const {
  return std::min(global_batch_, samples_);
}

ScheduledBatch BatchSchedule::batch(std::int64_t step) const {
  if (step < 0) throw InvalidArgument{fmt::format("step {} has no batch; steps count from 0", step)};
  const std::int64_t step_in_epoch = step % steps_per_epoch_;
  const std::int64_t first = step_in_epoch * global_batch_;  // less than samples_, so this cannot overflow
  return {.epoch = step / steps_per_epoch_,
          .positions = {first, first + std::min(global_batch_, samples_ - first)},
          .ends_epoch = step_in_epoch == steps_per_epoch_ - 1};
}

std::int64_t BatchSchedule::total_steps(std::int64_t epochs) const {
  if (epochs < 0) throw InvalidArgument{fmt::format("the number of epochs is {}; expected 0 or more", epochs)};
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / steps_per_epoch_;
  if (epochs > most)
    throw ConfigError{fmt::format("--epochs is {}, too many to count their steps ({} an epoch); expected at most {}",
                                  epochs, steps_per_epoch_, most)};
  return epochs * steps_per_epoch_;
}

}  // namespace lockstep
