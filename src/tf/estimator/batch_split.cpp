#include "tf/estimator/batch_split.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/tensor/shared_parts.hpp"
#include "core/values/walks.hpp"

namespace lockstep::detail {
namespace {

const Shape& shape_of(const RowTensors::value_type& tensor) {
  if (const auto* const dense = std::get_if<Tensor*>(&tensor)) return (*dense)->shape();
  return std::get<SparseTensor*>(tensor)->dense_shape;
}

std::string describe(const RowTensors::value_type& tensor) {
  if (const auto* const dense = std::get_if<Tensor*>(&tensor)) return lockstep::describe((*dense)->view());
  const SparseTensor& sparse = *std::get<SparseTensor*>(tensor);
  return fmt::format("sparse {}{}", name_of(sparse.values.dtype()), lockstep::describe(sparse.dense_shape));
}

/// The number of rows of each dense tensor; nothing if there are none. A sparse one is cut by rows of its own.
std::optional<std::int64_t> rows_of(const RowTensors& tensors, std::string_view what) {
  std::optional<std::int64_t> rows;
  for (const auto& tensor : tensors) {
    if (shape_of(tensor).empty())
      throw InvalidArgument{
          fmt::format("{} hold {}; expected tensors of rows, their first dimension", what, describe(tensor))};
    if (const auto* const sparse = std::get_if<SparseTensor*>(&tensor)) {
      (*sparse)->require_valid();
      continue;
    }
    const std::int64_t own = shape_of(tensor).front();
    if (rows && own != *rows)
      throw InvalidArgument{fmt::format("{} have entries of {} and of {} rows", what, *rows, own)};
    rows = own;
  }
  return rows;
}

Tensor piece_of(const Tensor& tensor, int replica, int replicas) {
  const std::int64_t rows = tensor.shape().front() / replicas;
  return detail::rows_of(tensor, replica * rows, rows);
}

}  // namespace

RowTensors tensors_in(AnyValue batch) {
  RowTensors tensors;
  visit_leaves(batch, [&](const Description& type, void* leaf) {
    if (type.kind == Description::Kind::tensor) return void(tensors.emplace_back(static_cast<Tensor*>(leaf)));
    tensors.emplace_back(static_cast<SparseTensor*>(leaf));
  });
  return tensors;
}

std::string describe(const RowTensors& tensors) {
  std::string text;
  for (const auto& tensor : tensors) text += (text.empty() ? "" : ", ") + describe(tensor);
  return text.empty() ? "nothing" : text;
}

void split_batch(const RowTensors& features, const RowTensors& labels, int replica, int replicas, Stream& of_device) {
  const auto rows = rows_of(features, "features"), of_labels = rows_of(labels, "labels");
  if (rows && of_labels && *rows != *of_labels)
    throw InvalidArgument{fmt::format("features have {} rows and labels {}", *rows, *of_labels)};
  if (replicas == 1) return;
  for (const RowTensors* const tensors : {&features, &labels})
    for (const auto& tensor : *tensors)
      if (std::holds_alternative<Tensor*>(tensor) && shape_of(tensor).front() % replicas != 0)
        throw InvalidArgument{fmt::format("Batch size {} needs to be divisible by the number of replicas, which is {}.",
                                          shape_of(tensor).front(), replicas)};
  for (const RowTensors* const tensors : {&features, &labels})
    for (const auto& tensor : *tensors) {
      if (const auto* const dense = std::get_if<Tensor*>(&tensor)) {
        **dense = piece_of(**dense, replica, replicas);
      } else {
        SparseTensor& sparse = *std::get<SparseTensor*>(tensor);
        sparse =
            sparse.piece(replica, replicas, sparse.values.device() == DeviceKind::cpu ? Stream::host() : of_device);
      }
    }
}

}  // namespace lockstep::detail
