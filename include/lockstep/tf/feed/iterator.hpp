// Iterators over input: each rank draws its own batches, and all ranks end together.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/order/input_context.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/values.hpp>

namespace lockstep {

class Strategy;

namespace detail {

enum class EndOfInput : std::uint8_t { when_all_end, when_first_ends };  ///< InputOptions::EndOfInput

}  // namespace detail

/// How ranks draw from their sources. Nothing is sharded unasked.
struct InputOptions {
  /// How ranks share out data that all of them read. File or element i belongs to rank i mod n.
  enum class AutoShard : std::uint8_t {
    off,         ///< not at all: each rank gets what its source gives
    by_file,     ///< each rank opens files of its own
    by_element,  ///< each rank reads all elements, and gets its own
    automatic    ///< by file where there are files, else by element
  };

  /// When the input ends if ranks have different amounts of it: with the last rank's (`when_all_end`; a rank without
  /// input takes part with an empty batch while any other has input), or on all ranks before the first step that some
  /// rank has no input for (`when_first_ends`). The ranks compare it.
  using EndOfInput = detail::EndOfInput;

  /// Options of make_dataset_iterator and distribute.
  struct GlobalBatches {
    std::int64_t global_batch_size = 0;  ///< rows of a batch over all replicas; a multiple of their number
    /// Drops a global batch with fewer rows, such as the last of an epoch: all batches then have the same shapes.
    /// Otherwise it is cut like the others, so some replicas get fewer rows or none.
    bool drop_remainder = false;
    EndOfInput end = EndOfInput::when_all_end;  ///< a replica that gets no rows of a batch counts as one without input
    int prefetch_batches = 0;                   ///< InputOptions::prefetch_batches
  };

  /// Options of make_dataset_iterator.
  struct Arrays {
    std::int64_t global_batch_size = 0;  ///< as in GlobalBatches
    /// How often each row is read. If empty, repeats forever.
    std::optional<std::int64_t> num_epochs = 1;
    /// Shuffle seed; each epoch reshuffles. If empty, keeps the order.
    std::optional<std::uint64_t> shuffle_seed = 1;
    bool drop_remainder = false;                ///< as in GlobalBatches
    EndOfInput end = EndOfInput::when_all_end;  ///< as in GlobalBatches
    int prefetch_batches = 0;                   ///< InputOptions::prefetch_batches
  };

  /// Options of make_dataset_iterator for single elements.
  struct Elements {
    int prefetch_batches = 0;  ///< InputOptions::prefetch_batches
  };

  AutoShard auto_shard = AutoShard::off;
  EndOfInput end = EndOfInput::when_all_end;
  int prefetch_batches = 0;  ///< how many batches this rank draws ahead; see DistributedIterator
};

namespace detail {

/// Gives the next batch at each call, and an empty optional at the end of its data. Not called again after that.
template <class Batch>
using Source = std::function<std::optional<Batch>()>;

/// Makes this rank's source. `context` says which of the job's input pipelines this is.
template <class Batch>
using InputFn = std::function<Source<Batch>(const InputContext& context)>;

/// Makes a source of global batches that starts with the first one. Every rank's source gives the same batches.
template <class Batch>
using Dataset = std::function<Source<Batch>()>;

/// A source without its type, which gives null at the end.
using AnySource = std::function<std::shared_ptr<void>()>;

/// `make` without the type of its batches.
template <class Batch, class... T>
std::function<AnySource(T...)> any_sources(std::function<Source<Batch>(T...)> make) {
  return [make = std::move(make)](T... of) -> AnySource {
    Source<Batch> source = make(of...);
    if (!source) return nullptr;
    return [source = std::move(source)]() -> std::shared_ptr<void> {
      std::optional<Batch> batch = source();
      return batch ? std::make_shared<Batch>(*std::move(batch)) : nullptr;
    };
  };
}

struct FeedPlan;

/// A DistributedIterator without the type of its batches.
class LOCKSTEP_API Feed {
 public:
  Feed(Strategy& strategy, const Description& type, std::function<AnySource(const InputContext& context)> input_fn,
       InputOptions options, Here here);
  Feed(Strategy& strategy, const Description& type, std::vector<std::filesystem::path> files,
       std::function<AnySource(const std::filesystem::path& file)> open, InputOptions options, Here here);
  Feed(Strategy& strategy, const Description& type, std::function<AnySource()> dataset,
       InputOptions::GlobalBatches options, Here here);
  Feed(Strategy& strategy, const Description& type, std::function<AnySource()> dataset, InputOptions::Elements options,
       Here here);
  /// Iterates over the rows of arrays. `copy` returns a copy of their nest.
  Feed(Strategy& strategy, const Description& type, AnySource copy, InputOptions::Arrays options, Here here);
  Feed(Feed&&) noexcept;
  Feed& operator=(Feed&&) noexcept;
  ~Feed();

  std::shared_ptr<void> next(Here here);
  void initialize(Here here);
  /// Starts over, unless nothing was drawn yet.
  void begin(Here here);

 private:
  struct State;
  Feed(Strategy& strategy, const Description& type, FeedPlan plan, Here here);

  std::unique_ptr<State> state_;
};

}  // namespace detail

/// Feeds Strategy::run_on_next and run_steps_on_iterator. Ready as soon as it is constructed.
/// Everything it calls runs in the strategy's scope. The strategy must outlive it, and may be moved.
///
/// Prefetching. With `prefetch_batches`, from the first `next` on, a thread of this rank draws as many batches ahead,
/// in order; nothing is sent. Ranks may have different numbers. The batches are those of an iterator without
/// prefetching, and an exception of the source comes from the `next` that would have drawn; the source is not called
/// between an exception and the `next` after it. If the rank computes on a GPU, the batches' tensors are copied to it,
/// through pinned memory and beside the computation, and `next` returns them there; slices stay on the host.
///
/// The source then runs beside the program: what both use needs a lock, and a batch must not share memory that the
/// source writes to later. The strategy is current in it, as without prefetching, but calls that ranks make together
/// throw ContextError.
///
/// The thread ends with the iterator and at `initialize`, which wait for the call of the source in progress. If that
/// does not return within 10 seconds, the log gets a warning and the thread is left behind with the source, whose
/// references to the program may then dangle. Simulated ranks (sim::run) draw ahead in `next`, on their own thread.
template <std::default_initializable Batch>
class DistributedIterator {
 public:
  /// What make_input_fn_iterator, make_dataset_iterator and distribute_dataset make.
  DistributedIterator(detail::Feed feed) : feed_{std::move(feed)} {}

  /// COLL, blocking, one agreement, in cross-replica context. Returns the next batch of each rank. Returns an empty
  /// optional, on all ranks at once, when every rank has reached the end of its data. Until then a rank without data
  /// gets a batch without samples, and takes part in the step like the others. With EndOfInput::when_first_ends, all
  /// ranks reach the end as soon as one does; the batches that others had drawn for that step are lost.
  ///
  /// A batch without samples looks like the batch of the lowest rank that has one. Its tensors have the same element
  /// types, devices and extents, but a first extent of 0; a tensor without extents is 0. Vectors of tensors have the
  /// same length, and maps the same keys if those are integers, enums or strings. Everything else is
  /// default-constructed. A step in which a rank lacks a batch costs one more message, unless Batch has neither tensors
  /// nor such maps.
  ///
  /// An exception of the source is rethrown on its rank and becomes a PeerError on the others. The batches that they
  /// had drawn for that step are lost.
  std::optional<PerReplica<Batch>> next(Here here = Here::current()) {
    const std::shared_ptr<void> batch = feed_.next(here);
    if (!batch) return std::nullopt;
    return PerReplica<Batch>{std::move(*static_cast<Batch*>(batch.get()))};
  }

  /// LOCAL, in cross-replica context. Starts over by calling the input function again. If that throws, the next call of
  /// `next` rethrows, so that the other ranks learn of it.
  void initialize(Here here = Here::current()) { feed_.initialize(here); }

  /// COLL, blocking, one agreement, in cross-replica context. The batches as a range, which starts over in each loop:
  ///
  ///   for (const PerReplica<Batch>& batch : batches) strategy.run(step, args(batch));
  ///
  /// Each increment is a `next`. A rank that leaves the loop early is elsewhere, and all ranks throw MismatchError at
  /// their next agreement. The iterator must stay in place meanwhile.
  auto begin(Here here = Here::current()) {
    feed_.begin(here);
    return Loop{*this, here};
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  class Loop {
   public:
    using value_type = PerReplica<Batch>;
    using difference_type = std::ptrdiff_t;

    Loop(DistributedIterator& batches, Here here) : batches_{&batches}, here_{here}, batch_{batches.next(here)} {}

    const PerReplica<Batch>& operator*() const { return *batch_; }
    const PerReplica<Batch>* operator->() const { return &*batch_; }
    Loop& operator++() {
      batch_ = batches_->next(here_);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    DistributedIterator* batches_;
    Here here_;
    std::optional<PerReplica<Batch>> batch_;
  };

  detail::Feed feed_;
};

/// COLL, blocking, one agreement, in cross-replica context. Calls `input_fn` on this rank, in the strategy's scope:
/// once now, and once for every `initialize`. It returns this rank's source: a function that returns the next batch at
/// each call, and an empty optional at the end. It is not called again after that. Its context says that there are as
/// many pipelines as replicas, and that this one's number is the rank. Batches are those of one replica
/// (InputContext::per_replica_batch_size); each rank may have any number of them. With AutoShard::by_element or
/// automatic, `input_fn` gives the same elements on every rank instead, and each gets its own share.
///
/// An exception of `input_fn` is rethrown here and becomes a PeerError on the others. InvalidArgument if it returns no
/// source, for AutoShard::by_file, since it has no files (see distribute_dataset), or for a negative number of batches
/// to prefetch. MismatchError if the ranks' options differ.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, detail::InputFn<Batch> input_fn,
                                                  InputOptions options, Here here = Here::current()) {
  return detail::Feed{strategy, detail::description_of<Batch>(), detail::any_sources(std::move(input_fn)), options,
                      here};
}

/// The same with default options.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, detail::InputFn<Batch> input_fn,
                                                  Here here = Here::current()) {
  return make_input_fn_iterator<Batch>(strategy, std::move(input_fn), InputOptions{}, here);
}

}  // namespace lockstep
