// Random changes to the images of a training set.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/models/input/sample_source.hpp>

namespace lockstep {

/// Images, each changed differently in each epoch. The change is a function of the seed, the epoch and the sample, so
/// it is the same on every rank. Evaluations use the original images. LOCAL and pure, as every source.
class LOCKSTEP_API AugmentedSamples final : public SampleSource {
 public:
  /// The random changes to each image.
  struct Augmentation {
    bool flip = false;      ///< mirrors an image, left to right, with a probability of one half
    std::int64_t crop = 0;  ///< shifts an image by up to this many pixels in each direction, padding with zeros

    bool operator==(const Augmentation&) const = default;
  };

  /// `sample` is the shape of an image: [rows, columns] or [rows, columns, channels]. `images` must outlive it.
  /// InvalidArgument for another shape, or a negative crop.
  AugmentedSamples(const SampleSource& images, const Shape& sample, const Augmentation& augmentation,
                   std::uint64_t seed);

  std::int64_t count() const override { return images_.count(); }
  bool varies_by_epoch() const override { return true; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return images_.make_batch(capacity, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override;
  bool fills_at_once() const override { return images_.fills_at_once(); }
  void require_unchanged() const override { images_.require_unchanged(); }

 private:
  template <class Real>
  void change(std::span<const std::int64_t> sample_indices, std::span<Real> inputs) const;

  const SampleSource& images_;
  std::int64_t rows_, columns_, channels_;
  Augmentation augmentation_;
  std::uint64_t seed_;
};

/// "flip,crop"; empty if nothing is done.
LOCKSTEP_API std::string describe(const AugmentedSamples::Augmentation& augmentation);

}  // namespace lockstep
