#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/feed/iterator.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/order/row_sequence.hpp"
#include "core/tensor/digest.hpp"
#include "core/values/walks.hpp"
#include "tf/feed/batch_outline.hpp"
#include "tf/feed/feed.hpp"

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
const char* remainder_text(bool drop_remainder) {
  return drop_remainder ? ", without a smaller one" : "";
}

/// What this rank takes of a global batch of a dataset.
enum class Taken { piece, nothing, end };

/// What the options say of a batch of `rows`, of which `piece` are this rank's.
Taken judge(std::int64_t rows, Range piece, const InputOptions::GlobalBatches& options) {
  if (options.drop_remainder && rows < options.global_batch_size) return Taken::nothing;
  if (options.end == detail::EndOfInput::when_first_ends && piece.size() == 0) return Taken::end;
  return Taken::piece;
}

/// The number of rows. InvalidArgument unless all leaves have equally many and each is a tensor in host memory.
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

/// Replaces the leaves of a global batch by this rank's piece of them, in new memory, and describes the batch in
/// `what`. Leaves them as they are if the batch is dropped, or is the end of this rank's input.
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

/// "a dataset in global batches of 32".
std::string describe_dataset(const InputOptions::GlobalBatches& options) {
  return fmt::format("a dataset in global batches of {}{}", options.global_batch_size,
                     remainder_text(options.drop_remainder));
}

/// The arrays with a digest of each, and how they are read.
std::string describe_input(std::span<const Leaf> arrays, const InputOptions::Arrays& options) {
  std::vector<std::string> texts;
  for (const Leaf& leaf : arrays) {
    const TensorView array = array_of(leaf);
    texts.push_back(fmt::format("{} of digest {}", describe(array), to_hex(digest_of_elements(array))));
  }
  return fmt::format("{} in global batches of {}{}, {}, {}", fmt::join(texts, ", "), options.global_batch_size,
                     remainder_text(options.drop_remainder),
                     options.num_epochs ? fmt::format("num_epochs {}", *options.num_epochs) : "for ever",
                     options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "in order");
}

/// The elements of a dataset that are dealt in one step: one to each replica.
class ElementRound {
 public:
  explicit ElementRound(const InputContext& context) : context_{context} {}

  /// Begins the next round.
  void begin() {
    first_ += std::ssize(shapes_);
    shapes_.clear();
  }
  bool is_full() const { return std::ssize(shapes_) == context_.num_replicas_in_sync(); }

  /// Adds an element with tensors of these shapes. Returns whether it is this rank's.
  bool add(std::string shapes) {
    shapes_.push_back(std::move(shapes));
    return std::ssize(shapes_) == context_.input_pipeline_id() + 1;
  }

  /// "elements 4 to 7, each f32[2]", which the ranks compare.
  std::string describe() const {
    const std::int64_t last = first_ + std::ssize(shapes_) - 1;
    const std::string elements =
        last == first_ ? fmt::format("element {}", first_) : fmt::format("elements {} to {}", first_, last);
    if (std::ranges::count(shapes_, shapes_.front()) != std::ssize(shapes_))
      return fmt::format("{}: {}", elements, fmt::join(shapes_, "; "));
    return shapes_.front().empty() ? elements : fmt::format("{}, each {}", elements, shapes_.front());
  }

  std::string describe_end() const {
    return fmt::format("the end of the dataset after {} elements", first_ + std::ssize(shapes_));
  }

 private:
  InputContext context_;
  std::int64_t first_ = 0;
  std::vector<std::string> shapes_;
};

/// One rank's reader of arrays.
class ArrayReader {
 public:
  ArrayReader(std::vector<Leaf> arrays, const InputOptions::Arrays& options, const InputContext& context)
      : sequence_{row_count(arrays), options.num_epochs, options.shuffle_seed},
        arrays_{std::move(arrays)},
        options_{.global_batch_size = options.global_batch_size,
                 .drop_remainder = options.drop_remainder,
                 .end = options.end},
        context_{context} {
    (void)context.per_replica_batch_size(options.global_batch_size);
  }

  /// This rank's piece of the next batch, perhaps without rows; empty at the end. Describes the batch in `what`.
  std::optional<std::vector<Leaf>> next(std::string& what) {
    // Avoids overflow: a batch size may be as large as the type allows, to take all rows at once.
    const std::int64_t most = std::numeric_limits<std::int64_t>::max() - position_;
    const Range batch = sequence_.within({position_, position_ + std::min(options_.global_batch_size, most)});
    what = fmt::format("rows at {} to {}", batch.first, batch.last);
    if (batch.size() == 0) return std::nullopt;
    const Range piece = context_.piece_of_batch(batch.size(), options_.global_batch_size);
    if (judge(batch.size(), piece, options_) != Taken::piece) return std::nullopt;  // only the last batch is smaller
    position_ = batch.last;
    return take_rows(arrays_, sequence_.rows_at({batch.first + piece.first, batch.first + piece.last}));
  }

 private:
  RowSequence sequence_;
  std::vector<Leaf> arrays_;
  InputOptions::GlobalBatches options_;
  InputContext context_;
  std::int64_t position_ = 0;
};

}  // namespace

Feed::Feed(Strategy& strategy, const Description& type, std::function<AnySource()> dataset,
           InputOptions::GlobalBatches options, Here here)
    : Feed{strategy, type,
           FeedPlan{.start =
                        [&type, dataset = std::move(dataset), options, context = input_context_of(strategy)] {
                          (void)context.per_replica_batch_size(options.global_batch_size);
                          return [&type, source = required_source(dataset(), "dataset"), options,
                                  context](std::string& what) -> std::shared_ptr<void> {
                            while (std::shared_ptr<void> batch = source()) {
                              std::vector<Leaf> leaves = leaves_in({type, batch.get()});
                              const Taken taken = take_piece(leaves, options, context, what);
                              if (taken == Taken::end) return nullptr;
                              if (taken == Taken::nothing) continue;
                              set_leaves({type, batch.get()}, leaves);
                              return batch;
                            }
                            what = "the end of the dataset";
                            return nullptr;
                          };
                        },
                    .describe = [options] { return describe_dataset(options); },
                    .end = options.end,
                    .prefetch_batches = options.prefetch_batches},
           here} {}

Feed::Feed(Strategy& strategy, const Description& type, std::function<AnySource()> dataset,
           InputOptions::Elements options, Here here)
    : Feed{strategy, type,
           FeedPlan{.start =
                        [&type, dataset = std::move(dataset), context = input_context_of(strategy)] {
                          return [&type, source = required_source(dataset(), "dataset"),
                                  round = ElementRound{context}](std::string& what) mutable -> std::shared_ptr<void> {
                            std::shared_ptr<void> own;
                            for (round.begin(); !round.is_full();) {
                              const std::shared_ptr<void> element = source();
                              if (!element) {
                                what = round.describe_end();
                                return nullptr;
                              }
                              if (round.add(describe_tensors(type, element.get()))) own = element;
                            }
                            what = round.describe();
                            return own;
                          };
                        },
                    .describe = [] { return "the elements of a dataset"; },
                    .prefetch_batches = options.prefetch_batches},
           here} {}

Feed::Feed(Strategy& strategy, const Description& type, AnySource copy, InputOptions::Arrays options, Here here)
    : Feed{strategy, type,
           FeedPlan{.start =
                        [&type, copy, options, context = input_context_of(strategy)] {
                          const auto arrays = leaves_in({type, copy().get()});
                          return [&type, copy, reader = ArrayReader{arrays, options, context}](
                                     std::string& what) mutable -> std::shared_ptr<void> {
                            const auto piece = reader.next(what);
                            if (!piece) return nullptr;
                            const std::shared_ptr<void> batch = copy();
                            set_leaves({type, batch.get()}, *piece);
                            return batch;
                          };
                        },
                    .describe =
                        [&type, copy, options] {
                          return describe_input(leaves_in({type, copy().get()}), options);
                        },
                    .end = options.end,
                    .prefetch_batches = options.prefetch_batches},
           here} {}

}  // namespace lockstep::detail
