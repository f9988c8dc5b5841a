// Datasets that ranks share out among themselves: by file, by element, or by rows of global batches.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/tf/feed/dataset_iterator.hpp>
#include <lockstep/tf/feed/iterator.hpp>

namespace lockstep {

namespace detail {

/// InvalidArgument if there are no files.
LOCKSTEP_API void require_files(std::size_t files);

/// Whether ranks take files, or elements. InvalidArgument for another value of AutoShard.
LOCKSTEP_API bool is_by_file(InputOptions::AutoShard shard);

/// The files of the pipeline: all, or every n-th.
LOCKSTEP_API std::vector<std::filesystem::path> files_of(const std::vector<std::filesystem::path>& files,
                                                         InputOptions::AutoShard shard, const InputContext& context);

/// "a dataset of 3 files, sharded by file".
LOCKSTEP_API std::string describe_files(std::size_t files, InputOptions::AutoShard shard);

/// Logs one line on the first rank if some replicas get no file.
LOCKSTEP_API void warn_of_files(std::size_t files, InputOptions::AutoShard shard, const InputContext& context);

}  // namespace detail

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
  const std::size_t count = files.size();
  const detail::InputFn<Batch> input_fn = [files = std::move(files), open = std::move(open),
                                           options](const InputContext& context) {
    detail::require_files(files.size());
    return [own = detail::files_of(files, options.auto_shard, context), open, next = 0U,
            source = detail::Source<Batch>{}]() mutable -> std::optional<Batch> {
      for (;;) {
        if (!source && next == own.size()) return std::nullopt;
        if (!source) source = open(own[next++]);
        if (!source) detail::refuse_source("open");
        if (std::optional<Batch> batch = source()) return batch;
        source = nullptr;
      }
    };
  };
  InputOptions of_elements = options;
  if (detail::is_by_file(options.auto_shard)) of_elements.auto_shard = InputOptions::AutoShard::off;
  const auto describe = [&] { return detail::describe_files(count, options.auto_shard); };
  auto iterator = detail::make_sharded_iterator<Batch>(strategy, input_fn, describe, of_elements, here);
  detail::warn_of_files(count, options.auto_shard, detail::input_context_of(strategy));
  return iterator;
}

/// A dataset that is distributed over the replicas, as a range of the batches of each: an input range for range-for.
/// Must stay in place while it is iterated over. Ends as its DistributedIterator does.
template <class Batch>
class DistributedIterator<Batch>::Batches {
 public:
  /// Takes an iterator that was not asked for a batch yet.
  explicit Batches(DistributedIterator<Batch> iterator) : iterator_{std::move(iterator)} {}

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using value_type = PerReplica<Batch>;
    using difference_type = std::ptrdiff_t;

    /// LOCAL. Valid until the next increment.
    const PerReplica<Batch>& operator*() const { return *dataset_->batch_; }
    const PerReplica<Batch>* operator->() const { return &*dataset_->batch_; }

    /// COLL, blocking, one agreement, in cross-replica context: as DistributedIterator::next. A rank that has left the
    /// loop is elsewhere, and all ranks throw MismatchError at their next agreement.
    Iterator& operator++() {
      dataset_->batch_ = dataset_->iterator_.next(here_);
      return *this;
    }
    void operator++(int) { ++*this; }

    /// LOCAL. Whether the input has ended, which it does on all ranks at once.
    bool operator==(std::default_sentinel_t) const { return !dataset_->batch_; }

   private:
    friend class Batches;
    Iterator(Batches& dataset, Here here) : dataset_{&dataset}, here_{here} {}

    Batches* dataset_;
    Here here_;  ///< the loop
  };

  /// COLL, blocking, one agreement, in cross-replica context. Starts over, and draws the first batch.
  Iterator begin(Here here = Here::current()) {
    batch_.reset();
    if (std::exchange(begun_, true)) iterator_.initialize(here);
    batch_ = iterator_.next(here);
    return {*this, here};
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  DistributedIterator<Batch> iterator_;
  std::optional<PerReplica<Batch>> batch_;
  bool begun_ = false;
};

/// COLL, blocking, one agreement, in cross-replica context. The batches of make_dataset_iterator as a range:
///   for (const PerReplica<Batch>& batch : dataset) strategy.run(step, args(batch));
/// Each loop starts over. Throws as make_dataset_iterator does.
template <detail::Reducible Batch>
typename DistributedIterator<Batch>::Batches distribute(Strategy& strategy, detail::Dataset<Batch> dataset,
                                                        InputOptions::GlobalBatches options,
                                                        Here here = Here::current()) {
  return typename DistributedIterator<Batch>::Batches{
      make_dataset_iterator<Batch>(strategy, std::move(dataset), options, here)};
}

}  // namespace lockstep
