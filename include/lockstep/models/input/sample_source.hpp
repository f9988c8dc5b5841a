// Samples of any kind, for code that cuts them into batches without looking into them.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/input/batch.hpp>

namespace lockstep {

/// A numbered list of samples. LOCAL and pure: every call returns the same samples under the same numbers.
class LOCKSTEP_API SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::int64_t count() const = 0;

  /// Whether each epoch has samples of its own, as with random changes to images. The number of a sample in `fill` is
  /// then epoch * count() + sample, with epochs from 0, for samples to train on.
  virtual bool varies_by_epoch() const { return false; }

  /// The number of labels per sample. Decides how many samples are evaluated at a time.
  virtual std::int64_t labels_per_sample() const { return 1; }

  /// Whether labels are the bytes of a text, so that a mean loss gives bits per byte.
  virtual bool labels_are_bytes() const { return false; }

  /// The data's own unit for a label of 1, if labels are scaled numbers.
  virtual double label_unit() const { return 1; }

  /// An empty batch for up to `capacity` samples, on the host, in memory that `stream` copies from best.
  virtual SampleBatch make_batch(std::int64_t capacity, Stream& stream) const = 0;

  /// Fills row i of the batch with sample `sample_indices[i]` and its labels, zeroes the rows after the last sample,
  /// and sets the number of samples. `batch` comes from make_batch, or is part of a batch that does; copies of its
  /// tensors share its memory. InvalidArgument if there are more samples than rows, or for a sample that does not
  /// exist.
  virtual void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const = 0;

  /// Whether several threads may call `fill` at once, each with a batch of its own. With FitOptions::threads, each then
  /// fills the batches that it computes.
  virtual bool fills_at_once() const { return false; }

  /// Throws a ConfigError, which names the file, if files from which samples are read no longer hold what they held at
  /// the start. `fit` calls it on one thread at the end of each epoch and evaluation; other threads may call `fill`.
  virtual void require_unchanged() const {}
};

}  // namespace lockstep
