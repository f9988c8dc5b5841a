#include <algorithm>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/input/batch.hpp>

namespace lockstep {
namespace {

template <class Real>
void fill_inputs(const ImageSet& images, std::span<const std::int64_t> sample_indices, std::span<Real> rows) {
  const auto features = static_cast<std::size_t>(images.features());
  auto row = rows.begin();
  for (const std::int64_t sample : sample_indices) {
    const std::uint8_t* const pixels = images.pixels.data() + static_cast<std::size_t>(sample) * features;
    row = std::transform(pixels, pixels + features, row,
                         [](std::uint8_t pixel) { return static_cast<Real>(pixel) / Real{255}; });
  }
  std::fill(row, rows.end(), Real{0});
}

void fill_labels(const ImageSet& images, std::span<const std::int64_t> sample_indices, std::span<std::int32_t> rows) {
  const auto row = std::transform(sample_indices.begin(), sample_indices.end(), rows.begin(), [&](std::int64_t sample) {
    return std::int32_t{images.labels[static_cast<std::size_t>(sample)]};
  });
  std::fill(row, rows.end(), 0);
}

void require_fit(const ImageSet& images, std::span<const std::int64_t> sample_indices, const SampleBatch& batch) {
  const Shape& shape = batch.inputs.shape();
  const auto samples = static_cast<std::int64_t>(sample_indices.size());
  if (shape.size() != 2 || batch.labels.shape() != Shape{shape[0]})
    throw InvalidArgument{fmt::format("a batch of inputs {} and labels {} was not made by make_batch",
                                      describe(batch.inputs.view()), describe(batch.labels.view()))};
  if (samples > shape[0])
    throw InvalidArgument{fmt::format("{} samples do not fit into a batch of {} rows", samples, shape[0])};
  if (images.features() != shape[1])
    throw InvalidArgument{
        fmt::format("images of {} x {} pixels do not fit into rows of {}", images.rows, images.columns, shape[1])};
  if (images.pixels.size() != images.labels.size() * static_cast<std::size_t>(shape[1]))
    throw InvalidArgument{fmt::format("{} pixels are not {} images of {} x {}", images.pixels.size(), images.count(),
                                      images.rows, images.columns)};
  for (const std::int64_t sample : sample_indices)
    if (sample < 0 || sample >= images.count())
      throw InvalidArgument{fmt::format("sample {} is outside of [0, {})", sample, images.count())};
}

}  // namespace

SampleBatch make_batch(std::int64_t capacity, std::int64_t features, DType dtype, Stream& stream) {
  if (dtype != DType::f32 && dtype != DType::f64)
    throw InvalidArgument{fmt::format("batches of {} are not supported; expected f32 or f64", name_of(dtype))};
  if (capacity < 1 || features < 1)
    throw InvalidArgument{
        fmt::format("a batch of {} rows of {} features; expected 1 or more of both", capacity, features)};
  return {Tensor::pinned(dtype, {capacity, features}, stream), Tensor::pinned(DType::i32, {capacity}, stream), 0};
}

void fill_batch(const ImageSet& images, std::span<const std::int64_t> sample_indices, SampleBatch& batch) {
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

}  // namespace lockstep
