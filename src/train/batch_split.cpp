#include "train/batch_split.hpp"

#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep::detail {
namespace {

/// The number of rows of each leaf; nothing if there are no leaves.
std::optional<std::int64_t> rows_of(const std::vector<Leaf>& leaves, std::string_view what) {
  std::optional<std::int64_t> rows;
  for (const Leaf& leaf : leaves) {
    const auto* const tensor = std::get_if<Tensor>(&leaf);
    if (!tensor) throw InvalidArgument{fmt::format("{} hold slices; expected tensors", what)};
    if (tensor->shape().empty())
      throw InvalidArgument{fmt::format("{} hold {}; expected tensors of at least one dimension, which is that of rows",
                                        what, describe(tensor->view()))};
    const std::int64_t own = tensor->shape().front();
    if (rows && own != *rows)
      throw InvalidArgument{fmt::format("{} have entries of {} and of {} rows", what, *rows, own)};
    rows = own;
  }
  return rows;
}

Tensor piece_of(const Tensor& tensor, int replica, int replicas) {
  Shape shape = tensor.shape();
  shape.front() /= replicas;
  const std::int64_t count = element_count(shape);
  return tensor.sharing(tensor.view().slice(replica * count, count).reshaped(std::move(shape)));
}

}  // namespace

void split_batch(std::vector<Leaf>& features, std::optional<std::vector<Leaf>>& labels, int replica, int replicas) {
  const auto rows = rows_of(features, "features");
  const auto of_labels = labels ? rows_of(*labels, "labels") : std::nullopt;
  if (rows && of_labels && *rows != *of_labels)
    throw InvalidArgument{fmt::format("features have {} rows and labels {}", *rows, *of_labels)};
  if (const std::int64_t all = rows ? *rows : of_labels.value_or(0); all % replicas != 0)
    throw InvalidArgument{
        fmt::format("Batch size {} needs to be divisible by the number of replicas, which is {}.", all, replicas)};
  for (Leaf& leaf : features) leaf = piece_of(std::get<Tensor>(leaf), replica, replicas);
  if (labels)
    for (Leaf& leaf : *labels) leaf = piece_of(std::get<Tensor>(leaf), replica, replicas);
}

}  // namespace lockstep::detail
