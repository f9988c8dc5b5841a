#include "models/nn/shard_checks.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_count.hpp"

namespace lockstep::nn {

void require_shard(const SampleBatch& shard, const ShardForm& form) {
  const TensorView inputs = shard.inputs.view();
  if (inputs.dtype() != form.dtype || inputs.shape().size() != 2 || inputs.shape()[1] != form.columns)
    throw InvalidArgument{fmt::format("a shard of inputs {} for {} of {}[rows, {}]", describe(inputs), form.model,
                                      name_of(form.dtype), form.columns)};
  const std::int64_t rows = inputs.shape()[0];
  Shape labels = form.labels_of_row;
  labels.insert(labels.begin(), rows);
  if (shard.labels.dtype() != form.labels_dtype || shard.labels.shape() != labels)
    throw InvalidArgument{fmt::format("a shard of inputs {} with labels {}; expected {}{}", describe(inputs),
                                      describe(shard.labels.view()), name_of(form.labels_dtype), describe(labels))};
  if (shard.samples < 0 || shard.samples > rows)
    throw InvalidArgument{fmt::format("a shard of {} samples in {} rows", shard.samples, rows)};
}

void require_places(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places) {
  if (places.empty() || places.size() != shards.batches.size())
    throw InvalidArgument{fmt::format("{} shards with {} places; expected one or more, and a place for each",
                                      shards.batches.size(), places.size())};
}

TensorView rows_from(const TensorView& view, std::int64_t first, std::int64_t rows) {
  Shape shape = view.shape();
  shape.front() = 1;
  const std::int64_t columns = element_count(shape);
  shape.front() = rows;
  return view.slice(first * columns, rows * columns).reshaped(shape);
}

TensorView first_rows(const TensorView& view, std::int64_t rows) {
  return rows_from(view, 0, rows);
}

std::vector<double> to_doubles(const TensorView& view) {
  if (view.dtype() == DType::f64) return view.to_vector<double>();
  if (view.dtype() == DType::bf16) {
    const auto values = view.to_vector<BFloat16>();
    return {values.begin(), values.end()};
  }
  const auto values = view.to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace lockstep::nn
