// Iterators over data that every rank has whole, in global batches of which each replica takes its piece.
//
// A batch is a tensor of host memory, or a nest of them (a tuple, a map, a struct with a Nest), all with the same first
// dimension: its rows. Members that a Nest does not name go along as they are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/input/row_sequence.hpp>
#include <lockstep/train/iterator.hpp>
#include <lockstep/values/nest.hpp>

namespace lockstep {

/// Makes a source of global batches that begins at the beginning. Every rank's gives the same batches.
template <class Batch>
using Dataset = std::function<Source<Batch>()>;

struct DatasetOptions {
  std::int64_t global_batch_size = 0;  ///< rows of a batch, for all replicas together, whose number divides it
};

struct ArrayOptions {
  std::int64_t global_batch_size = 0;  ///< as DatasetOptions
  /// How often each row is read; nothing: for ever.
  std::optional<std::int64_t> num_epochs = 1;
  /// Of the order of the rows, another in each epoch; nothing: as they are.
  std::optional<std::uint64_t> shuffle_seed = 1;
};

namespace detail {

/// InvalidArgument, for all functions here, unless every leaf is a tensor of the host and has as many rows as the
/// others.
std::int64_t row_count(std::span<const Leaf> leaves);

/// Leaves of their own memory, with the rows of `leaves` that are given.
std::vector<Leaf> take_rows(std::span<const Leaf> leaves, std::span<const std::int64_t> rows);
std::vector<Leaf> take_rows(std::span<const Leaf> leaves, Range rows);

/// "f32[32, 784], i32[32]".
std::string describe_arrays(std::span<const Leaf> leaves);

/// The same with a digest of each array, and how they are read.
std::string describe_input(std::span<const Leaf> arrays, const ArrayOptions& options);

/// One rank's way through arrays.
class ArrayReader {
 public:
  ArrayReader(std::vector<Leaf> arrays, const ArrayOptions& options, const InputContext& context);

  /// This rank's piece of the next batch, which may have no rows; nothing at the end. `what` is the batch in words.
  std::optional<std::vector<Leaf>> next(std::string& what);

 private:
  std::vector<Leaf> arrays_;
  std::int64_t global_batch_size_;
  InputContext context_;
  RowSequence sequence_;
  std::int64_t position_ = 0;
};

}  // namespace detail

/// COLL, one agreement, in cross-replica context. Replica r of n takes the r-th of n equal pieces of every batch. A
/// last batch with fewer rows is cut in the same places: some replicas get fewer rows of it or none, which is a batch
/// of tensors with a first dimension of 0, and take part in the step like the others.
///
/// InvalidArgument where the replicas do not divide `global_batch_size`, a batch has more rows than that, or `dataset`
/// returns no source. MismatchError where the ranks' batches differ in shape or type, or come to an end in different
/// steps.
template <Reducible Batch>
DistributedIterator<Batch> make_dataset_iterator(Strategy& strategy, Dataset<Batch> dataset, DatasetOptions options,
                                                 Here here = Here::current()) {
  const auto start = [dataset = std::move(dataset), options, context = detail::input_context_of(strategy)] {
    (void)context.per_replica_batch_size(options.global_batch_size);
    Source<Batch> source = dataset();
    if (!source) detail::refuse_source("dataset");
    return [source = std::move(source), options, context](std::string& what) -> std::optional<Batch> {
      const std::optional<Batch> batch = source();
      if (!batch) {
        what = "the end of the dataset";
        return std::nullopt;
      }
      const std::vector<detail::Leaf> leaves = detail::leaves_of(*batch);
      what = detail::describe_arrays(leaves);
      const Range piece = context.piece_of_batch(detail::row_count(leaves), options.global_batch_size);
      return detail::with_leaves(*batch, detail::take_rows(leaves, piece));
    };
  };
  return {strategy, start,
          [&] { return "a dataset in global batches of " + std::to_string(options.global_batch_size); }, here};
}

/// COLL, one agreement, in cross-replica context. Over the rows of `arrays`, which every rank has, and has alike: that
/// is compared, by digest. They are shuffled, repeated and then cut into global batches, so a batch may lie in two
/// epochs, and only the very last can be smaller. Pieces are as in make_dataset_iterator; the order of the rows is that
/// of RowSequence, and the same after every `initialize`.
///
/// Shares the arrays' memory, which must not change as long as the iterator lives. InvalidArgument where the replicas
/// do not divide `global_batch_size`, or the arrays have no rows or not equally many.
template <Reducible Arrays>
DistributedIterator<Arrays> make_array_iterator(Strategy& strategy, Arrays arrays, ArrayOptions options,
                                                Here here = Here::current()) {
  const std::vector<detail::Leaf> leaves = detail::leaves_of(arrays);
  const auto start = [arrays = std::move(arrays), leaves, options, context = detail::input_context_of(strategy)] {
    return [arrays, reader = detail::ArrayReader{leaves, options, context}](std::string& what) mutable {
      const auto piece = reader.next(what);
      return piece ? std::optional{detail::with_leaves(arrays, *piece)} : std::nullopt;
    };
  };
  return {strategy, start, [&] { return detail::describe_input(leaves, options); }, here};
}

}  // namespace lockstep
