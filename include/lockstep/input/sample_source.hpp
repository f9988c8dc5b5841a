// Samples of any kind, for code that cuts them into batches without looking into them.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/base/dtype.hpp>
#include <lockstep/input/batch.hpp>
#include <lockstep/input/idx.hpp>
#include <lockstep/input/text.hpp>

namespace lockstep {

/// A numbered list of samples. LOCAL and pure: every call returns the same samples under the same numbers.
class SampleSource {
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

  /// What a label of 1 is in the data's own unit, if labels are scaled numbers.
  virtual double label_unit() const { return 1; }

  /// An empty batch for up to `capacity` samples, on the host, in memory that `stream` copies from best.
  virtual SampleBatch make_batch(std::int64_t capacity, Stream& stream) const = 0;

  /// As fill_batch. `batch` comes from make_batch, or is part of a batch that does.
  virtual void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const = 0;
};

/// Images as rows of numbers. `images` must outlive it.
class ImageSamples final : public SampleSource {
 public:
  /// Batches are of `dtype`: f32 or f64.
  ImageSamples(const ImageSet& images, DType dtype) : images_{images}, dtype_{dtype} {}

  std::int64_t count() const override { return images_.count(); }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, images_.features(), dtype_, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    fill_batch(images_, sample_indices, batch);
  }

 private:
  const ImageSet& images_;
  DType dtype_;
};

/// Windows of a text. `text` must outlive it.
class TextSamples final : public SampleSource {
 public:
  explicit TextSamples(const TextSet& text) : text_{text} {}

  std::int64_t count() const override { return text_.count(); }
  std::int64_t labels_per_sample() const override { return text_.context; }
  bool labels_are_bytes() const override { return text_.tokens && text_.tokens->are_bytes(); }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return make_text_batch(capacity, text_.context, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    fill_batch(text_, sample_indices, batch);
  }

 private:
  const TextSet& text_;
};

}  // namespace lockstep
