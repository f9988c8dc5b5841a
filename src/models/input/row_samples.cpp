#include "models/input/row_samples.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/input/batch_checks.hpp"
#include "models/input/batches.hpp"
#include "models/input/standard_scale.hpp"

namespace lockstep {
namespace {

class RowSamples final : public SampleSource {
 public:
  RowSamples(LabelledRows rows, const DataSchema& schema, DType dtype)
      : rows_{std::move(rows)}, schema_{schema}, dtype_{dtype} {}

  std::int64_t count() const override { return rows_.rows->count(); }
  double label_unit() const override { return schema_.label_scale.deviation; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    SampleBatch batch = lockstep::make_batch(capacity, rows_.rows->width(), dtype_, stream);
    if (regresses()) batch.labels = Tensor::pinned(dtype_, {capacity}, stream);
    return batch;
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override;
  bool fills_at_once() const override { return true; }
  void require_unchanged() const override { rows_.rows->require_unchanged(); }

 private:
  bool regresses() const { return schema_.task == DataSchema::Task::regression; }
  void require_fit(std::span<const std::int64_t> sample_indices, const SampleBatch& batch) const;

  template <class Real>
  void fill_all(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const;
  template <class Real>
  void fill_rows(std::span<const std::int64_t> sample_indices, std::span<Real> inputs) const;
  template <class Real>
  Real number_of(std::int64_t sample) const;
  std::int32_t class_of(std::int64_t sample) const {
    return rows_.labels.empty() ? 0 : rows_.labels[static_cast<std::size_t>(sample)];
  }

  LabelledRows rows_;
  DataSchema schema_;
  DType dtype_;
};

void RowSamples::require_fit(std::span<const std::int64_t> sample_indices, const SampleBatch& batch) const {
  const Shape& shape = batch.inputs.shape();
  if (shape.size() != 2 || shape[1] != rows_.rows->width() || batch.inputs.dtype() != dtype_ ||
      batch.labels.shape() != Shape{shape[0]} || batch.labels.dtype() != (regresses() ? dtype_ : DType::i32))
    throw InvalidArgument{fmt::format("a batch of inputs {} and labels {} is not for rows of {} numbers",
                                      describe(batch.inputs.view()), describe(batch.labels.view()),
                                      rows_.rows->width())};
  require_samples(sample_indices, count(), shape[0]);
}

template <class Real>
void RowSamples::fill_rows(std::span<const std::int64_t> sample_indices, std::span<Real> inputs) const {
  const auto width = static_cast<std::size_t>(rows_.rows->width());
  std::vector<double> numbers(schema_.scales.size());
  for (const std::int64_t sample : sample_indices) {
    if (numbers.empty())
      rows_.rows->read(sample, inputs.first(width));
    else
      rows_.rows->read(sample, std::span{numbers});
    for (std::size_t column = 0; column < numbers.size(); ++column)
      inputs[column] = scaled<Real>(numbers[column], schema_.scales[column], schema_.columns[column]);
    inputs = inputs.subspan(width);
  }
  std::ranges::fill(inputs, Real{0});
}

template <class Real>
Real RowSamples::number_of(std::int64_t sample) const {
  if (rows_.numbers.empty()) return 0;
  return scaled<Real>(rows_.numbers[static_cast<std::size_t>(sample)], schema_.label_scale, schema_.label_column);
}

/// The label of each sample, and zeroes after the last.
template <class Label, class LabelOf>
void fill_labels_by(std::span<const std::int64_t> sample_indices, const TensorView& to, LabelOf&& label_of) {
  const auto labels = to.elements<Label>();
  std::fill(std::ranges::transform(sample_indices, labels.begin(), label_of).out, labels.end(), Label{0});
}

template <class Real>
void RowSamples::fill_all(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const {
  fill_rows(sample_indices, batch.inputs.view().elements<Real>());
  if (regresses())
    fill_labels_by<Real>(sample_indices, batch.labels.view(), [&](auto sample) { return number_of<Real>(sample); });
  else
    fill_labels_by<std::int32_t>(sample_indices, batch.labels.view(), [&](auto sample) { return class_of(sample); });
}

void RowSamples::fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const {
  require_fit(sample_indices, batch);
  if (dtype_ == DType::f64)
    fill_all<double>(sample_indices, batch);
  else
    fill_all<float>(sample_indices, batch);
  batch.samples = std::ssize(sample_indices);
}

}  // namespace

std::unique_ptr<const SampleSource> samples_of(LabelledRows rows, const DataSchema& schema, DType dtype) {
  return rows.rows ? std::make_unique<RowSamples>(std::move(rows), schema, dtype) : nullptr;
}

}  // namespace lockstep
