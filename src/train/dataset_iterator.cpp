#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/train/dataset_iterator.hpp>

#include "tensor/digest.hpp"

namespace lockstep::detail {
namespace {

/// The leaf as a tensor of a batch. InvalidArgument if it is none.
TensorView array_of(const Leaf& leaf) {
  const auto* const tensor = std::get_if<Tensor>(&leaf);
  if (!tensor) throw InvalidArgument{"slices are no batch: expected tensors"};
  if (tensor->shape().empty())
    throw InvalidArgument{
        fmt::format("{} is no batch: expected tensors of at least one dimension, which is that of "
                    "the rows",
                    describe(tensor->view()))};
  if (tensor->device() != DeviceKind::cpu)
    throw InvalidArgument{fmt::format("{} is in the memory of a {} device; batches are cut in the host's",
                                      describe(tensor->view()), name_of(tensor->device()))};
  return tensor->view();
}

Tensor rows_of(const TensorView& array, std::span<const std::int64_t> rows) {
  Shape shape = array.shape();
  const auto row_bytes =
      static_cast<std::size_t>(element_count(Shape(shape.begin() + 1, shape.end()))) * size_of(array.dtype());
  shape.front() = static_cast<std::int64_t>(rows.size());
  const Tensor taken = Tensor::uninitialised(array.dtype(), std::move(shape));
  std::byte* to = taken.view().data();
  if (row_bytes == 0) return taken;
  for (const std::int64_t row : rows) {
    std::memcpy(to, array.data() + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return taken;
}

}  // namespace

std::int64_t row_count(std::span<const Leaf> leaves) {
  if (leaves.empty()) throw InvalidArgument{"a batch without tensors; expected 1 or more"};
  const TensorView first = array_of(leaves.front());
  for (const Leaf& leaf : leaves) {
    const TensorView array = array_of(leaf);
    if (array.shape().front() != first.shape().front())
      throw InvalidArgument{fmt::format("{} and {} have not equally many rows", describe(first), describe(array))};
  }
  return first.shape().front();
}

std::vector<Leaf> take_rows(std::span<const Leaf> leaves, std::span<const std::int64_t> rows) {
  std::vector<Leaf> taken;
  for (const Leaf& leaf : leaves) taken.push_back(rows_of(array_of(leaf), rows));
  return taken;
}

std::vector<Leaf> take_rows(std::span<const Leaf> leaves, Range rows) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows.size()));
  std::iota(all.begin(), all.end(), rows.first);
  return take_rows(leaves, all);
}

std::string describe_arrays(std::span<const Leaf> leaves) {
  std::vector<std::string> texts;
  for (const Leaf& leaf : leaves) texts.push_back(describe(array_of(leaf)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string describe_input(std::span<const Leaf> arrays, const ArrayOptions& options) {
  std::vector<std::string> texts;
  for (const Leaf& leaf : arrays) {
    const TensorView array = array_of(leaf);
    texts.push_back(fmt::format("{} of digest {}", describe(array), to_hex(digest_of_elements(array))));
  }
  return fmt::format("{} in global batches of {}, {}, {}", fmt::join(texts, ", "), options.global_batch_size,
                     options.num_epochs ? fmt::format("num_epochs {}", *options.num_epochs) : "for ever",
                     options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "in order");
}

ArrayReader::ArrayReader(std::vector<Leaf> arrays, const ArrayOptions& options, const InputContext& context)
    : arrays_{std::move(arrays)},
      global_batch_size_{options.global_batch_size},
      context_{context},
      sequence_{row_count(arrays_), options.num_epochs, options.shuffle_seed} {
  (void)context.per_replica_batch_size(global_batch_size_);
}

std::optional<std::vector<Leaf>> ArrayReader::next(std::string& what) {
  // Avoids overflow: a batch size may be as large as the type allows, to take all rows at once.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - position_;
  const Range batch = sequence_.within({position_, position_ + std::min(global_batch_size_, most)});
  what = fmt::format("rows at {} to {}", batch.first, batch.last);
  if (batch.size() == 0) return std::nullopt;
  const Range piece = context_.piece_of_batch(batch.size(), global_batch_size_);
  position_ = batch.last;
  return take_rows(arrays_, sequence_.rows_at({batch.first + piece.first, batch.first + piece.last}));
}

}  // namespace lockstep::detail
