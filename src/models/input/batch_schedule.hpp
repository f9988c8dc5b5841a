// Which positions of which epoch a training step takes.
#pragma once

#include <cstdint>

#include <lockstep/core/order/range.hpp>

namespace lockstep {

/// The global batch of one step.
struct ScheduledBatch {
  std::int64_t epoch;
  /// Positions in that epoch's sample order; never empty.
  Range positions;
  bool ends_epoch;
};

/// Cuts each epoch into global batches. The last one of an epoch takes what is left. Steps count from 0 and continue
/// across epochs. Each epoch visits every sample exactly once.
class BatchSchedule {
 public:
  /// InvalidArgument unless both are positive. If the global batch is larger than the dataset, one step takes the whole
  /// dataset.
  BatchSchedule(std::int64_t samples, std::int64_t global_batch);

  std::int64_t samples() const { return samples_; }
  std::int64_t global_batch() const { return global_batch_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }

  /// The number of samples in the largest batch: the global batch, or the dataset if that is smaller. Memory is
  /// allocated for this many, so an oversized global batch costs nothing.
  std::int64_t largest_batch() const;

  /// The batch of step `step`. InvalidArgument if it is negative.
  ScheduledBatch batch(std::int64_t step) const;

  /// The number of steps in `epochs` whole epochs. InvalidArgument if `epochs` is negative; ConfigError (--epochs) if
  /// the steps cannot be counted.
  std::int64_t total_steps(std::int64_t epochs) const;

 private:
  std::int64_t samples_;
  std::int64_t global_batch_;
  std::int64_t steps_per_epoch_;
};

}  // namespace lockstep
