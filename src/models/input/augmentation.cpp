#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>
#include <lockstep/models/input/augmentation.hpp>

namespace lockstep {
namespace {

/// How one image is changed in one epoch.
struct Change {
  bool flips = false;
  std::int64_t down = 0, right = 0;  ///< from where in the image each pixel comes
};

Change change_of(const RandomStream& random, std::int64_t sample, const AugmentedSamples::Augmentation& augmentation) {
  const auto index = 3 * static_cast<std::uint64_t>(sample);
  const auto shift = [&](std::uint64_t of) {
    const auto most = static_cast<std::uint64_t>(augmentation.crop);
    return static_cast<std::int64_t>(random.below(2 * most + 1, index + of)) - augmentation.crop;
  };
  return {.flips = augmentation.flip && random.below(2, index) == 1, .down = shift(1), .right = shift(2)};
}

}  // namespace

std::string describe(const AugmentedSamples::Augmentation& augmentation) {
  std::string text = augmentation.flip ? "flip" : "";
  if (augmentation.crop > 0) text += text.empty() ? "crop" : ",crop";
  return text;
}

AugmentedSamples::AugmentedSamples(const SampleSource& images, const Shape& sample,
                                   const AugmentedSamples::Augmentation& augmentation, std::uint64_t seed)
    : images_{images}, augmentation_{augmentation}, seed_{seed} {
  if (sample.size() != 2 && sample.size() != 3)
    throw InvalidArgument{
        fmt::format("images {}; expected [rows, columns] or [rows, columns, channels]", describe(sample))};
  if (augmentation.crop < 0)
    throw InvalidArgument{fmt::format("a crop of {} pixels; expected 0 or more", augmentation.crop)};
  rows_ = sample[0];
  columns_ = sample[1];
  channels_ = sample.size() == 3 ? sample[2] : 1;
}

void AugmentedSamples::fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const {
  std::vector<std::int64_t> samples;
  for (const std::int64_t number : sample_indices) {
    if (number < 0) throw InvalidArgument{fmt::format("sample {} of epochs; expected 0 or more", number)};
    samples.push_back(number % count());
  }
  images_.fill(samples, batch);
  const TensorView inputs = batch.inputs.view();
  inputs.dtype() == DType::f64 ? change(sample_indices, inputs.elements<double>())
                               : change(sample_indices, inputs.elements<float>());
}

template <class Real>
void AugmentedSamples::change(std::span<const std::int64_t> sample_indices, std::span<Real> inputs) const {
  const auto size = static_cast<std::size_t>(rows_ * columns_ * channels_);
  std::vector<Real> image(size);
  for (const std::int64_t number : sample_indices) {
    const RandomStream random{seed_, RandomStream::Purpose::augmentation, static_cast<std::uint64_t>(number / count())};
    const Change change = change_of(random, number % count(), augmentation_);
    std::ranges::copy(inputs.first(size), image.begin());
    auto to = inputs.begin();
    for (std::int64_t row = 0; row < rows_; ++row)
      for (std::int64_t column = 0; column < columns_; ++column, to += channels_) {
        const std::int64_t from_row = row + change.down;
        const std::int64_t from_column = (change.flips ? columns_ - 1 - column : column) + change.right;
        const bool inside = from_row >= 0 && from_row < rows_ && from_column >= 0 && from_column < columns_;
        if (inside)
          std::copy_n(image.begin() + (from_row * columns_ + from_column) * channels_, channels_, to);
        else
          std::fill_n(to, channels_, Real{0});
      }
    inputs = inputs.subspan(size);
  }
}

}  // namespace lockstep
