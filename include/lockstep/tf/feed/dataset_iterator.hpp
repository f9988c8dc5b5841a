// Iterators over data that every rank holds whole. They cut it into global batches, and each replica takes its piece of
// every batch.
//
// A batch is a tensor in host memory, or a nest of them (a tuple, a map, a struct with a Nest). All have the same first
// dimension, the rows. Members that a Nest does not name are passed on unchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/tf/feed/batch_tensors.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep {

namespace detail {

/// Makes a source of global batches that starts with the first one. Every rank's source gives the same batches.
template <class Batch>
using Dataset = std::function<Source<Batch>()>;

/// The number of rows. InvalidArgument unless all leaves have equally many and each is a tensor in host memory; the
/// functions below check the latter too.
LOCKSTEP_API std::int64_t row_count(std::span<const Leaf> leaves);

/// "a dataset in global batches of 32".
LOCKSTEP_API std::string describe_dataset(const InputOptions::GlobalBatches& options);

/// The arrays with a digest of each, and how they are read.
LOCKSTEP_API std::string describe_input(std::span<const Leaf> arrays, const InputOptions::Arrays& options);

/// What this rank takes of a global batch of a dataset.
enum class Taken : std::uint8_t { piece, nothing, end };

/// Replaces the leaves of a global batch by this rank's piece of them, in new memory, and describes the batch in
/// `what`. Leaves them as they are if the batch is dropped, or is the end of this rank's input.
LOCKSTEP_API Taken take_piece(std::vector<Leaf>& leaves, const InputOptions::GlobalBatches& options,
                              const InputContext& context, std::string& what);

/// The elements of a dataset that are dealt in one step: one to each replica.
class LOCKSTEP_API ElementRound {
 public:
  explicit ElementRound(const InputContext& context) : context_{context} {}

  /// Begins the next round.
  void begin();
  bool is_full() const { return std::ssize(shapes_) == context_.num_replicas_in_sync(); }

  /// Adds an element with tensors of these shapes. Returns whether it is this rank's.
  bool add(std::string shapes);

  /// "elements 4 to 7, each f32[2]", and what it is if the dataset ends first: all that the ranks compare.
  std::string describe() const;
  std::string describe_end() const;

 private:
  InputContext context_;
  std::int64_t first_ = 0;
  std::vector<std::string> shapes_;
};

/// One rank's reader of arrays. A handle: its copies share one position.
class LOCKSTEP_API ArrayReader {
 public:
  ArrayReader(std::vector<Leaf> arrays, const InputOptions::Arrays& options, const InputContext& context);

  /// This rank's piece of the next batch, perhaps without rows; empty at the end. Describes the batch in `what`.
  std::optional<std::vector<Leaf>> next(std::string& what);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace detail

/// COLL, blocking, one agreement, in cross-replica context. Each call of `dataset` makes a source that starts with the
/// first global batch: a function that returns the next batch at each call, and an empty optional at the end. The
/// sources of all ranks return the same batches. Replica r of n takes the r-th of n equal pieces of every batch. A
/// smaller last batch is cut in the same places, so some replicas get fewer rows or none. A replica without rows gets
/// tensors whose first dimension is 0, and takes part in the step like the others. The options can drop such a batch,
/// or let the input end before a step that a replica has no rows for.
///
/// InvalidArgument if the replicas do not divide `global_batch_size`, a batch has more rows than that, or `dataset`
/// returns no source. MismatchError if the ranks' batches differ in shape or type, or end at different steps.
template <detail::Reducible Batch>
DistributedIterator<Batch> make_dataset_iterator(Strategy& strategy, detail::Dataset<Batch> dataset,
                                                 InputOptions::GlobalBatches options, Here here = Here::current()) {
  const auto start = [dataset = std::move(dataset), options, context = detail::input_context_of(strategy)] {
    (void)context.per_replica_batch_size(options.global_batch_size);
    detail::Source<Batch> source = dataset();
    if (!source) detail::refuse_source("dataset");
    return [source = std::move(source), options, context](std::string& what) -> std::optional<Batch> {
      while (const std::optional<Batch> batch = source()) {
        std::vector<detail::Leaf> leaves = detail::leaves_of(*batch);
        const detail::Taken taken = detail::take_piece(leaves, options, context, what);
        if (taken == detail::Taken::piece) return detail::with_leaves(*batch, leaves);
        if (taken == detail::Taken::end) return std::nullopt;
      }
      what = "the end of the dataset";
      return std::nullopt;
    };
  };
  return {strategy,
          start,
          [&] { return detail::describe_dataset(options); },
          {options.end, options.prefetch_batches},
          here};
}

/// COLL, blocking, one agreement, in cross-replica context. The same of single elements, which may have any type, and
/// are dealt out: in step i, replica r of n gets element i n + r. If fewer than n elements are left, they are dropped,
/// and the input ends on all ranks.
///
/// InvalidArgument if `dataset` returns no source. MismatchError if the elements' tensors differ between ranks in shape
/// or type, or if the ranks have different numbers of elements.
template <class Element>
DistributedIterator<Element> make_dataset_iterator(Strategy& strategy, detail::Dataset<Element> dataset,
                                                   InputOptions::Elements options, Here here = Here::current()) {
  const auto start = [dataset = std::move(dataset), context = detail::input_context_of(strategy)] {
    detail::Source<Element> source = dataset();
    if (!source) detail::refuse_source("dataset");
    return [source = std::move(source),
            round = detail::ElementRound{context}](std::string& what) mutable -> std::optional<Element> {
      std::optional<Element> own;
      for (round.begin(); !round.is_full();) {
        std::optional<Element> element = source();
        if (!element) {
          what = round.describe_end();
          return std::nullopt;
        }
        if (round.add(detail::describe_tensors(*element))) own = std::move(element);
      }
      what = round.describe();
      return own;
    };
  };
  return {strategy,
          start,
          [] { return "the elements of a dataset"; },
          {.prefetch_batches = options.prefetch_batches},
          here};
}

/// COLL, blocking, one agreement, in cross-replica context. Iterates over the rows of `arrays`, which must be the same
/// on every rank; the ranks compare digests. The rows are shuffled, repeated and then cut into global batches, so a
/// batch may span two epochs, and only the very last can be smaller (or is dropped). Replicas take pieces of it as of a
/// dataset's. Each epoch's order is a function of the seed, the epoch and the number of rows alone, and the same after
/// every `initialize`.
///
/// Shares the arrays' memory, which must not change while the iterator lives. InvalidArgument if the replicas do not
/// divide `global_batch_size`, or if the arrays have no rows or different numbers of rows.
template <detail::Reducible Arrays>
DistributedIterator<Arrays> make_dataset_iterator(Strategy& strategy, Arrays arrays, InputOptions::Arrays options,
                                                  Here here = Here::current()) {
  const std::vector<detail::Leaf> leaves = detail::leaves_of(arrays);
  const auto start = [arrays = std::move(arrays), leaves, options, context = detail::input_context_of(strategy)] {
    return [arrays, reader = detail::ArrayReader{leaves, options, context}](std::string& what) mutable {
      const auto piece = reader.next(what);
      return piece ? std::optional{detail::with_leaves(arrays, *piece)} : std::nullopt;
    };
  };
  return {strategy,
          start,
          [&] { return detail::describe_input(leaves, options); },
          {options.end, options.prefetch_batches},
          here};
}

}  // namespace lockstep
