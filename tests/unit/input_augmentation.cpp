// Random changes to images.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/augmentation.hpp>
#include <lockstep/models/input/idx.hpp>

#include "models/input/samples.hpp"

using namespace lockstep;

namespace {

constexpr std::int64_t rows = 5, columns = 7, channels = 2, image_count = 40;

/// Every byte of an image is another one.
ImageData::Set numbered_images() {
  ImageData::Set set{.rows = rows, .columns = columns, .channels = channels};
  for (std::int64_t image = 0; image < image_count; ++image) {
    for (std::int64_t i = 0; i < rows * columns * channels; ++i) set.pixels.push_back(static_cast<std::uint8_t>(i + 1));
    set.labels.push_back(static_cast<std::uint8_t>(image));
  }
  return set;
}

/// The bytes of these samples, in batches of `capacity`.
std::vector<int> pixels_of(const SampleSource& source, const std::vector<std::int64_t>& samples,
                           std::int64_t capacity = 1) {
  std::vector<int> pixels;
  SampleBatch batch = source.make_batch(capacity, Stream::host());
  for (std::size_t first = 0; first < samples.size(); first += static_cast<std::size_t>(capacity)) {
    const std::size_t count = std::min(samples.size() - first, static_cast<std::size_t>(capacity));
    source.fill(std::span{samples}.subspan(first, count), batch);
    const auto inputs = batch.inputs.to_vector<float>();
    for (std::size_t i = 0; i < count * rows * columns * channels; ++i)
      pixels.push_back(static_cast<int>(255 * inputs[i] + 0.5F));
  }
  return pixels;
}

/// The image that is flipped, or not, and shifted: pixel [r, c] comes from [r + down, c + right].
std::vector<int> changed(bool flips, std::int64_t down, std::int64_t right) {
  std::vector<int> pixels;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const std::int64_t r = row + down, c = (flips ? columns - 1 - column : column) + right;
        const bool inside = r >= 0 && r < rows && c >= 0 && c < columns;
        pixels.push_back(inside ? static_cast<int>((r * columns + c) * channels + channel + 1) : 0);
      }
  return pixels;
}

struct Augmented {
  explicit Augmented(const AugmentedSamples::Augmentation& augmentation, std::uint64_t seed = 1)
      : source{samples, {rows, columns, channels}, augmentation, seed} {}
  ImageData::Set set = numbered_images();
  ImageSamples samples{set, DType::f32};
  AugmentedSamples source;
};

}  // namespace

TEST_CASE("every image is flipped or not and shifted, each way as often as another, and with zeros around it") {
  const Augmented augmented{{.flip = true, .crop = 2}};
  std::map<std::vector<int>, std::pair<bool, std::pair<std::int64_t, std::int64_t>>> ways;
  for (const bool flips : {false, true})
    for (std::int64_t down = -2; down <= 2; ++down)
      for (std::int64_t right = -2; right <= 2; ++right) ways[changed(flips, down, right)] = {flips, {down, right}};
  REQUIRE(ways.size() == 50);
  std::map<std::int64_t, int> downs, rights;
  int flips = 0;
  std::set<std::vector<int>> seen;
  constexpr std::int64_t epochs = 25;
  for (std::int64_t number = 0; number < epochs * image_count; ++number) {
    const std::vector<int> pixels = pixels_of(augmented.source, {number});
    REQUIRE(ways.contains(pixels));
    seen.insert(pixels);
    const auto& [flip, shift] = ways[pixels];
    flips += flip ? 1 : 0;
    ++downs[shift.first];
    ++rights[shift.second];
  }
  // 1000 draws: four standard deviations are 63 of the flips, and 51 of each shift.
  CHECK(std::abs(flips - 500) < 63);
  for (std::int64_t shift = -2; shift <= 2; ++shift) {
    CHECK(std::abs(downs[shift] - 200) < 51);
    CHECK(std::abs(rights[shift] - 200) < 51);
  }
  CHECK(seen.size() == 50);
}

TEST_CASE("how an image is changed depends on seed, epoch and sample, and on nothing else") {
  const Augmented augmented{{.flip = true, .crop = 2}}, other_seed{{.flip = true, .crop = 2}, 2};
  std::vector<std::int64_t> epoch(image_count), next(image_count);
  for (std::int64_t i = 0; i < image_count; ++i) {
    epoch[static_cast<std::size_t>(i)] = i;
    next[static_cast<std::size_t>(i)] = image_count + i;
  }
  const std::vector<int> one_by_one = pixels_of(augmented.source, epoch);
  CHECK(pixels_of(augmented.source, epoch, 16) == one_by_one);
  CHECK(pixels_of(augmented.source, next) != one_by_one);
  CHECK(pixels_of(other_seed.source, epoch) != one_by_one);
  // A sample of several epochs in one batch, in another order.
  CHECK(pixels_of(augmented.source, {image_count + 3, 3}, 2) == [&] {
    std::vector<int> both = pixels_of(augmented.source, {image_count + 3});
    const std::vector<int> first = pixels_of(augmented.source, {3});
    both.insert(both.end(), first.begin(), first.end());
    return both;
  }());
  // Flips are the same ones with and without crops.
  const Augmented flipped{{.flip = true}};
  for (std::int64_t i = 0; i < 10; ++i) {
    const bool flips = pixels_of(flipped.source, {i}) == changed(true, 0, 0);
    bool with_crop = false;
    for (std::int64_t down = -2; down <= 2; ++down)
      for (std::int64_t right = -2; right <= 2; ++right)
        with_crop = with_crop || pixels_of(augmented.source, {i}) == changed(true, down, right);
    CHECK(flips == with_crop);
  }
}

TEST_CASE("augmented samples have their labels and their names, and what are no images is refused") {
  const Augmented augmented{{.crop = 1}};
  SampleBatch batch = augmented.source.make_batch(2, Stream::host());
  augmented.source.fill(std::vector<std::int64_t>{2 * image_count + 7}, batch);
  CHECK(batch.samples == 1);
  CHECK(batch.labels.to_vector<std::int32_t>() == std::vector<std::int32_t>{7, 0});
  CHECK(augmented.source.varies_by_epoch());
  CHECK_FALSE(augmented.samples.varies_by_epoch());
  CHECK_THROWS_AS(augmented.source.fill(std::vector<std::int64_t>{-1}, batch), InvalidArgument);
  CHECK(describe(AugmentedSamples::Augmentation{}).empty());
  CHECK(describe(AugmentedSamples::Augmentation{.flip = true}) == "flip");
  CHECK(describe(AugmentedSamples::Augmentation{.flip = true, .crop = 4}) == "flip,crop");
  CHECK_THROWS_WITH((AugmentedSamples{augmented.samples, {9}, {}, 1}),
                    "images [9]; expected [rows, columns] or [rows, columns, channels]");
  CHECK_THROWS_AS((AugmentedSamples{augmented.samples, {9, 9}, {.crop = -1}, 1}), InvalidArgument);
}
