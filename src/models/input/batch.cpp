#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/batch.hpp>

#include "core/tensor/shared_parts.hpp"
#include "models/input/batch_checks.hpp"
#include "models/input/batches.hpp"
#include "models/input/text_sets.hpp"

namespace lockstep {
namespace {

/// The number that stands for each pixel: a division costs more than a look.
template <class Real>
constexpr std::array<Real, 256> number_of_pixel = [] {
  std::array<Real, 256> numbers{};
  for (std::size_t pixel = 0; pixel < numbers.size(); ++pixel) numbers[pixel] = static_cast<Real>(pixel) / Real{255};
  return numbers;
}();

template <class Real>
void fill_inputs(const ImageData::Set& images, std::span<const std::int64_t> sample_indices, std::span<Real> rows) {
  const auto features = static_cast<std::size_t>(images.features());
  auto row = rows.begin();
  for (const std::int64_t sample : sample_indices) {
    const std::uint8_t* const pixels = images.pixels.data() + static_cast<std::size_t>(sample) * features;
    row =
        std::transform(pixels, pixels + features, row, [](std::uint8_t pixel) { return number_of_pixel<Real>[pixel]; });
  }
  std::fill(row, rows.end(), Real{0});
}

void fill_labels(const ImageData::Set& images, std::span<const std::int64_t> sample_indices,
                 std::span<std::int32_t> rows) {
  const auto row = std::transform(sample_indices.begin(), sample_indices.end(), rows.begin(), [&](std::int64_t sample) {
    return std::int32_t{images.labels[static_cast<std::size_t>(sample)]};
  });
  std::fill(row, rows.end(), 0);
}

/// "28 x 28", or "32 x 32 x 3" with channels.
std::string size_of_image(const ImageData::Set& images) {
  const std::string plane = fmt::format("{} x {}", images.rows, images.columns);
  return images.channels == 1 ? plane : fmt::format("{} x {}", plane, images.channels);
}

/// `labels` is the shape of the labels in a batch of these inputs.
void require_shapes(const SampleBatch& batch, std::string_view maker, const Shape& labels) {
  if (batch.inputs.shape().size() != 2 || batch.labels.shape() != labels)
    throw InvalidArgument{fmt::format("a batch of inputs {} and labels {} was not made by {}",
                                      describe(batch.inputs.view()), describe(batch.labels.view()), maker)};
}

}  // namespace

void require_samples(std::span<const std::int64_t> sample_indices, std::int64_t count, std::int64_t rows) {
  if (static_cast<std::int64_t>(sample_indices.size()) > rows)
    throw InvalidArgument{fmt::format("{} samples do not fit into a batch of {} rows", sample_indices.size(), rows)};
  for (const std::int64_t sample : sample_indices)
    if (sample < 0 || sample >= count)
      throw InvalidArgument{fmt::format("sample {} is outside of [0, {})", sample, count)};
}

namespace {

void require_fit(const ImageData::Set& images, std::span<const std::int64_t> sample_indices, const SampleBatch& batch) {
  const Shape& shape = batch.inputs.shape();
  require_shapes(batch, "make_batch", {shape.empty() ? 0 : shape[0]});
  if (images.features() != shape[1])
    throw InvalidArgument{
        fmt::format("images of {} pixels do not fit into rows of {}", size_of_image(images), shape[1])};
  if (images.pixels.size() != images.labels.size() * static_cast<std::size_t>(shape[1]))
    throw InvalidArgument{
        fmt::format("{} pixels are not {} images of {}", images.pixels.size(), images.count(), size_of_image(images))};
  require_samples(sample_indices, images.count(), shape[0]);
}

void require_fit(const TextSet& text, std::span<const std::int64_t> sample_indices, const SampleBatch& batch) {
  const Shape& shape = batch.inputs.shape();
  require_shapes(batch, "make_text_batch", shape);
  if (batch.inputs.dtype() != DType::i32)
    throw InvalidArgument{fmt::format("a batch of inputs {} was not made by make_text_batch; expected i32",
                                      describe(batch.inputs.view()))};
  if (text.context != shape[1])
    throw InvalidArgument{fmt::format("samples of {} tokens do not fit into rows of {}", text.context, shape[1])};
  require_samples(sample_indices, text.count(), shape[0]);
}

/// Writes the tokens from `offset` on of each sample.
void fill_tokens(const TextSet& text, std::span<const std::int64_t> sample_indices, std::int64_t offset,
                 std::span<std::int32_t> rows) {
  const auto context = static_cast<std::size_t>(text.context);
  for (const std::int64_t sample : sample_indices) {
    text.tokens->read(sample * text.context + offset, rows.first(context));
    rows = rows.subspan(context);
  }
  std::ranges::fill(rows, 0);
}

}  // namespace

std::int64_t SampleBatch::counted_labels() const {
  const std::int64_t capacity = labels.shape()[0];
  return capacity == 0 ? 0 : samples * (labels.count() / capacity);
}

std::int64_t SampleBatch::Group::counted_labels() const {
  std::int64_t sum = 0;
  for (const SampleBatch& batch : batches) sum += batch.counted_labels();
  return sum;
}

SampleBatch::Group make_batch_group(const SampleBatch& whole, std::int64_t batches) {
  const std::int64_t rows = whole.inputs.shape().front();
  if (batches < 1 || rows % batches != 0)
    throw InvalidArgument{fmt::format("{} rows are not {} batches of one capacity", rows, batches)};
  const std::int64_t capacity = rows / batches;
  SampleBatch::Group group{whole.inputs, whole.labels, {}};
  for (std::int64_t first = 0; first < rows; first += capacity)
    group.batches.push_back({.inputs = detail::rows_of(whole.inputs, first, capacity),
                             .labels = detail::rows_of(whole.labels, first, capacity)});
  return group;
}

SampleBatch make_batch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument{fmt::format("batches of {} are not supported; expected f32 or f64", name_of(dtype))};
  if (capacity < 1 || features < 1)
    throw InvalidArgument{
        fmt::format("a batch of {} rows of {} features; expected 1 or more of both", capacity, features)};
  return {Tensor::pinned(dtype, {capacity, features}, stream), Tensor::pinned(DType::i32, {capacity}, stream), 0};
}

void fill_batch(const ImageData::Set& images, std::span<const std::int64_t> sample_indices, SampleBatch& batch) {
  require_fit(images, sample_indices, batch);
  const TensorView inputs = batch.inputs.view();
  const std::span<std::int32_t> labels = batch.labels.view().elements<std::int32_t>();
  if (inputs.dtype() == DType::f64)
    fill_inputs(images, sample_indices, inputs.elements<double>());
  else
    fill_inputs(images, sample_indices, inputs.elements<float>());
  fill_labels(images, sample_indices, labels);
  batch.samples = static_cast<std::int64_t>(sample_indices.size());
}

SampleBatch make_text_batch(std::int64_t capacity, std::int64_t context, Stream& stream) {
  if (capacity < 1 || context < 1)
    throw InvalidArgument{
        fmt::format("a batch of {} rows of {} tokens; expected 1 or more of both", capacity, context)};
  const Shape shape{capacity, context};
  return {Tensor::pinned(DType::i32, shape, stream), Tensor::pinned(DType::i32, shape, stream), 0};
}

void fill_batch(const TextSet& text, std::span<const std::int64_t> sample_indices, SampleBatch& batch) {
  require_fit(text, sample_indices, batch);
  fill_tokens(text, sample_indices, 0, batch.inputs.view().elements<std::int32_t>());
  fill_tokens(text, sample_indices, 1, batch.labels.view().elements<std::int32_t>());
  batch.samples = static_cast<std::int64_t>(sample_indices.size());
}

}  // namespace lockstep
