// Datasets that ranks share out among themselves: by file, by element, or by rows of global batches.
#pragma once

#include <filesystem>
#include <functional>
#include <utility>
#include <vector>

#include <lockstep/core/values/leaves.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep {

/// COLL, blocking, one agreement, in cross-replica context. As make_input_fn_iterator with these options: `input_fn` is
/// called once on each rank, and its context says which shard is this rank's.
///
/// By default nothing is sharded unasked (InputOptions::AutoShard::off): `input_fn` itself reads its shard of the data.
/// With AutoShard::by_element or automatic, `input_fn` gives the same elements on every rank, and rank r of n gets
/// elements r, r + n, r + 2n, …, but reads the others too.
template <class Batch>
DistributedIterator<Batch> distribute_dataset(Strategy& strategy, detail::InputFn<Batch> input_fn,
                                              InputOptions options = {}, Here here = Here::current()) {
  return make_input_fn_iterator<Batch>(strategy, std::move(input_fn), options, here);
}

/// COLL, blocking, one agreement, in cross-replica context. Reads the files one after the other; `open` makes a source
/// of the batches in one of them, as an input function does. By default every rank reads all of them. With
/// AutoShard::by_file or automatic, rank r of n opens files r, r + n, r + 2n, … and no other; if there are fewer files
/// than ranks, the first rank logs one line that says who gets none. With AutoShard::by_element each rank reads all
/// files and gets every n-th element of the whole.
///
/// A file is opened when its first batch is drawn. What `open` or a source throws is rethrown by that `next`, and
/// becomes a PeerError on the others. After an exception of `open`, `next` continues with the file after it.
///
/// InvalidArgument if there are no files, or if `open` returns no source. MismatchError if the ranks' options or
/// numbers of files differ.
template <class Batch>
DistributedIterator<Batch> distribute_dataset(
    Strategy& strategy, std::vector<std::filesystem::path> files,
    std::function<detail::Source<Batch>(const std::filesystem::path& file)> open, InputOptions options = {},
    Here here = Here::current()) {
  return detail::Feed{
      strategy, detail::description_of<Batch>(), std::move(files), detail::any_sources(std::move(open)), options, here};
}

/// The same as make_dataset_iterator of global batches, under the name that tf.distribute has for it.
template <detail::Reducible Batch>
DistributedIterator<Batch> distribute(Strategy& strategy, detail::Dataset<Batch> dataset,
                                      InputOptions::GlobalBatches options, Here here = Here::current()) {
  return make_dataset_iterator<Batch>(strategy, std::move(dataset), options, here);
}

}  // namespace lockstep
