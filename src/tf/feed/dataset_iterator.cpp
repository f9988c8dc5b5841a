#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/order/row_sequence.hpp"
#include "core/tensor/digest.hpp"

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

/// Copies the given rows of `leaves` into new memory.
std::vector<Leaf> take_rows(std::span<const Leaf> leaves, std::span<const std::int64_t> rows) {
  std::vector<Leaf> taken;
  for (const Leaf& leaf : leaves) taken.push_back(rows_of(array_of(leaf), rows));
  return taken;
}

/// "f32[32, 784], i32[32]".
std::string describe_arrays(std::span<const Leaf> leaves) {
  std::vector<std::string> texts;
  for (const Leaf& leaf : leaves) texts.push_back(describe(array_of(leaf)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// For the end of a description; nothing by default.
const char* text_of(InputOptions::Remainder remainder) {
  return remainder == InputOptions::Remainder::drop ? ", without a smaller one" : "";
}

/// What the options say of a batch of `rows`, of which `piece` are this rank's.
Taken judge(std::int64_t rows, Range piece, const InputOptions::GlobalBatches& options) {
  if (options.remainder == InputOptions::Remainder::drop && rows < options.global_batch_size) return Taken::nothing;
  if (options.end == detail::EndOfInput::when_first_ends && piece.size() == 0) return Taken::end;
  return Taken::piece;
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

Taken take_piece(std::vector<Leaf>& leaves, const InputOptions::GlobalBatches& options, const InputContext& context,
                 std::string& what) {
  what = describe_arrays(leaves);
  const std::int64_t rows = row_count(leaves);
  const Range piece = context.piece_of_batch(rows, options.global_batch_size);
  const Taken taken = judge(rows, piece, options);
  if (taken != Taken::piece) return taken;
  std::vector<std::int64_t> own(static_cast<std::size_t>(piece.size()));
  std::iota(own.begin(), own.end(), piece.first);
  leaves = take_rows(leaves, own);
  return taken;
}

std::string describe_dataset(const InputOptions::GlobalBatches& options) {
  return fmt::format("a dataset in global batches of {}{}", options.global_batch_size, text_of(options.remainder));
}

std::string describe_input(std::span<const Leaf> arrays, const InputOptions::Arrays& options) {
  std::vector<std::string> texts;
  for (const Leaf& leaf : arrays) {
    const TensorView array = array_of(leaf);
    texts.push_back(fmt::format("{} of digest {}", describe(array), to_hex(digest_of_elements(array))));
  }
  return fmt::format("{} in global batches of {}{}, {}, {}", fmt::join(texts, ", "), options.global_batch_size,
                     text_of(options.remainder),
                     options.num_epochs ? fmt::format("num_epochs {}", *options.num_epochs) : "for ever",
                     options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "in order");
}

void ElementRound::begin() {
  first_ += std::ssize(shapes_);
  shapes_.clear();
}

bool ElementRound::add(std::string shapes) {
  shapes_.push_back(std::move(shapes));
  return std::ssize(shapes_) == context_.input_pipeline_id() + 1;
}

std::string ElementRound::describe() const {
  const std::int64_t last = first_ + std::ssize(shapes_) - 1;
  const std::string elements =
      last == first_ ? fmt::format("element {}", first_) : fmt::format("elements {} to {}", first_, last);
  if (std::ranges::count(shapes_, shapes_.front()) != std::ssize(shapes_))
    return fmt::format("{}: {}", elements, fmt::join(shapes_, "; "));
  return shapes_.front().empty() ? elements : fmt::format("{}, each {}", elements, shapes_.front());
}

std::string ElementRound::describe_end() const {
  return fmt::format("the end of the dataset after {} elements", first_ + std::ssize(shapes_));
}

struct ArrayReader::State {
  std::vector<Leaf> arrays;
  InputOptions::GlobalBatches options;
  InputContext context;
  RowSequence sequence;
  std::int64_t position = 0;
};

ArrayReader::ArrayReader(std::vector<Leaf> arrays, const InputOptions::Arrays& options, const InputContext& context) {
  RowSequence sequence{row_count(arrays), options.num_epochs, options.shuffle_seed};
  (void)context.per_replica_batch_size(options.global_batch_size);
  state_ = std::make_shared<State>(
      State{std::move(arrays),
            {.global_batch_size = options.global_batch_size, .remainder = options.remainder, .end = options.end},
            context,
            std::move(sequence)});
}

std::optional<std::vector<Leaf>> ArrayReader::next(std::string& what) {
  auto& [arrays, options, context, sequence, position] = *state_;
  // Avoids overflow: a batch size may be as large as the type allows, to take all rows at once.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - position;
  const Range batch = sequence.within({position, position + std::min(options.global_batch_size, most)});
  what = fmt::format("rows at {} to {}", batch.first, batch.last);
  if (batch.size() == 0) return std::nullopt;
  const Range piece = context.piece_of_batch(batch.size(), options.global_batch_size);
  if (judge(batch.size(), piece, options) != Taken::piece) return std::nullopt;  // only the last batch is smaller
  position = batch.last;
  return take_rows(arrays, sequence.rows_at({batch.first + piece.first, batch.first + piece.last}));
}

}  // namespace lockstep::detail
