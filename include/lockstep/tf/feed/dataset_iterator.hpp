// Iterators over data that every rank holds whole. They cut it into global batches, and each replica takes its piece of
// every batch.
//
// A batch is a tensor in host memory, or a nest of them (a tuple, a map, a struct with a Nest). All have the same first
// dimension, the rows. Members that a Nest does not name are passed on unchanged.
#pragma once

#include <memory>
#include <utility>

#include <lockstep/core/values/leaves.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep {

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
  return detail::Feed{strategy, detail::description_of<Batch>(), detail::any_sources(std::move(dataset)), options,
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
  return detail::Feed{strategy, detail::description_of<Element>(), detail::any_sources(std::move(dataset)), options,
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
  const auto copy = [arrays = std::move(arrays)] { return std::make_shared<Arrays>(arrays); };
  return detail::Feed{strategy, detail::description_of<Arrays>(), copy, options, here};
}

}  // namespace lockstep
