// Images and texts in memory as sources of samples.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include <lockstep/models/input/sample_source.hpp>

#include "models/input/batches.hpp"

namespace lockstep {

/// Images as rows of numbers. `images` must outlive it.
class ImageSamples final : public SampleSource {
 public:
  /// Batches are of `dtype`: f32 or f64.
  ImageSamples(const ImageData::Set& images, DType dtype) : images_{images}, dtype_{dtype} {}

  std::int64_t count() const override { return images_.count(); }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, images_.features(), dtype_, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    fill_batch(images_, sample_indices, batch);
  }
  bool fills_at_once() const override { return true; }

 private:
  const ImageData::Set& images_;
  DType dtype_;
};

/// Windows of a text.
class TextSamples final : public SampleSource {
 public:
  explicit TextSamples(TextSet text) : text_{std::move(text)} {}

  std::int64_t count() const override { return text_.count(); }
  std::int64_t labels_per_sample() const override { return text_.context; }
  bool labels_are_bytes() const override { return text_.tokens && text_.tokens->are_bytes(); }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return make_text_batch(capacity, text_.context, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    fill_batch(text_, sample_indices, batch);
  }
  bool fills_at_once() const override { return true; }
  void require_unchanged() const override {
    if (text_.tokens) text_.tokens->require_unchanged();
  }

 private:
  TextSet text_;
};

}  // namespace lockstep
