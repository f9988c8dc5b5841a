// Which positions of which epoch a training step takes.
#pragma once

#include <cstdint>

#include <lockstep/input/range.hpp>

namespace lockstep {

/// The global batch of one step.
struct ScheduledBatch {
  std::int64_t epoch;
  /// Positions in that epoch's sample order; never empty.
  Range positions;
  bool ends_epoch;
};

/// Cuts every epoch into global batches, the last of which is what is left. Steps count from 0 and run on
/// over epochs; each epoch visits every sample exactly once.
class BatchSchedule {
 public:
  /// InvalidArgument unless both are positive. A global batch larger than the dataset takes all of it in one
  /// step.
  BatchSchedule(std::int64_t samples, std::int64_t global_batch);

  std::int64_t samples() const { return samples_; }
  std::int64_t global_batch() const { return global_batch_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }

  /// No step takes more samples than this: the global batch, or the dataset where that is smaller. Memory is
  /// made for this many, so an oversized global batch costs nothing.
  std::int64_t largest_batch() const;

  /// InvalidArgument where `step` is negative.
  ScheduledBatch batch(std::int64_t step) const;

  /// Steps of `epochs` whole epochs. InvalidArgument where it is negative, ConfigError (--epochs) where the
  /// steps cannot be counted.
  std::int64_t total_steps(std::int64_t epochs) const;

 private:
  std::int64_t samples_;
  std::int64_t global_batch_;
  std::int64_t steps_per_epoch_;
};

}  // namespace lockstep
