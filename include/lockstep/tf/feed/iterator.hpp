// Iterators over input: each rank draws its own batches, and all ranks end together.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/order/input_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/feed/batch_outline.hpp>
#include <lockstep/tf/feed/distributed_input.hpp>
#include <lockstep/tf/feed/draw_ahead.hpp>

namespace lockstep {

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

  /// How ranks share input work.
  enum class ReplicationMode : std::uint8_t {
    per_worker,  ///< each rank has its own pipeline and shares nothing of it
  };

  /// What becomes of a global batch with fewer rows than `global_batch_size`, such as the last of an epoch.
  enum class Remainder : std::uint8_t {
    cut,  ///< it is cut like the others, so some replicas get fewer rows or none
    drop  ///< no replica gets it: all batches have the same shapes, on every replica and in every step
  };

  /// Options of make_dataset_iterator and distribute.
  struct GlobalBatches {
    std::int64_t global_batch_size = 0;  ///< rows of a batch over all replicas; a multiple of their number
    Remainder remainder = Remainder::cut;
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
    Remainder remainder = Remainder::cut;       ///< as in GlobalBatches
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
template <class Batch>
class DistributedIterator {
 public:
  /// Draws this rank's next batch; empty at the end of its data. Describes in `what`, for the error message, whatever
  /// must be the same on every rank; the ranks compare it.
  using Draw = std::function<std::optional<Batch>(std::string& what)>;

  /// How batches are drawn: as in InputOptions.
  struct DrawOptions {
    InputOptions::EndOfInput end = InputOptions::EndOfInput::when_all_end;
    int prefetch_batches = 0;
  };

  /// COLL, blocking, one agreement, in cross-replica context. For the make_…_iterator functions. Calls `describe`,
  /// which says what the iterator is over, and `start`, which begins at the first batch; then the ranks compare the
  /// descriptions and the end of input. Every `initialize` calls `start` again.
  DistributedIterator(Strategy& strategy, std::function<Draw()> start, const std::function<std::string()>& describe,
                      DrawOptions options, Here here)
      : address_{strategy}, start_{std::move(start)}, options_{options} {
    detail::agree_on_input(
        address_.strategy(),
        [&] {
          detail::require_prefetch(options_.prefetch_batches);
          detail::InputOffer iterator{.what = "an iterator over " + describe(), .end = options_.end};
          draw_ = make_draw();
          return iterator;
        },
        here);
  }
  DistributedIterator(DistributedIterator&&) noexcept = default;
  DistributedIterator& operator=(DistributedIterator&&) noexcept = default;

  /// The batches as a range, which `distribute` makes (distribute.hpp).
  class Batches;

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
    std::optional<Batch> own;
    const detail::InputAnswer answer = detail::agree_on_input(
        address_.strategy(),
        [&] {
          detail::InputOffer offer{.end = options_.end};
          if (draw_) own = draw_(offer.what);
          if (!own) draw_ = nullptr;
          offer.any = own.has_value();
          if constexpr (detail::needs_outline<Batch>()) {
            if (own) offer.outline = detail::outline_of(*own);
            offer.lacks_outline = !own;
          }
          return offer;
        },
        here);
    if (!answer.goes_on) {
      draw_ = nullptr;
      return std::nullopt;
    }
    if (own) return PerReplica<Batch>{*std::move(own)};
    if constexpr (detail::needs_outline<Batch>()) {
      return PerReplica<Batch>{detail::batch_without_samples<Batch>(answer.outline, address_.strategy().stream())};
    } else {
      return PerReplica<Batch>{Batch{}};
    }
  }

  /// LOCAL, in cross-replica context. Starts over by calling the input function again. If that throws, the next call of
  /// `next` rethrows, so that the other ranks learn of it.
  void initialize(Here here = Here::current()) {
    const Scope scope = address_.strategy().scope(here);
    draw_ = nullptr;  // whatever draws ahead ends before the input function is called
    try {
      draw_ = make_draw();
    } catch (...) {
      draw_ = [failure = std::current_exception()](std::string&) -> std::optional<Batch> {
        std::rethrow_exception(failure);
      };
    }
  }

 private:
  Draw make_draw() {
    Draw draw = start_();
    if (options_.prefetch_batches == 0) return draw;
    return detail::draw_ahead<Batch>(address_, options_.prefetch_batches, std::move(draw));
  }

  detail::StrategyAddress address_;
  std::function<Draw()> start_;
  DrawOptions options_;
  Draw draw_;  ///< empty after the end of this rank's data
};

namespace detail {

/// The place of this rank's pipeline among the strategy's: one pipeline per replica.
LOCKSTEP_API InputContext input_context_of(Strategy& strategy);

LOCKSTEP_API void require_supported(InputOptions::ReplicationMode mode);

/// Whether ranks take elements of a source that is no file. InvalidArgument if they are to take files.
LOCKSTEP_API bool is_by_element(InputOptions::AutoShard shard);

/// What `describe` says, and how it is sharded.
LOCKSTEP_API std::string describe_sharded(const std::string& dataset, InputOptions::AutoShard shard);

/// The elements that belong to the pipeline.
template <class Batch>
Source<Batch> own_elements(Source<Batch> source, const InputContext& context) {
  return [source = std::move(source), context, at = 0]() mutable -> std::optional<Batch> {
    while (std::optional<Batch> element = source()) {
      const int owner = at;
      at = (at + 1) % context.num_input_pipelines();
      if (owner == context.input_pipeline_id()) return element;
    }
    return std::nullopt;
  };
}

/// Throws InvalidArgument: `maker` returned no source.
LOCKSTEP_API [[noreturn]] void refuse_source(std::string_view maker);

/// make_input_fn_iterator for what `describe` describes.
template <class Batch>
DistributedIterator<Batch> make_sharded_iterator(Strategy& strategy, InputFn<Batch> input_fn,
                                                 const std::function<std::string()>& describe, InputOptions options,
                                                 Here here) {
  const auto start = [input_fn = std::move(input_fn), options, context = input_context_of(strategy)] {
    Source<Batch> source = input_fn(context);
    if (!source) refuse_source("input_fn");
    if (is_by_element(options.auto_shard)) source = own_elements(std::move(source), context);
    return [source = std::move(source)](std::string&) { return source(); };
  };
  return {strategy,
          start,
          [&] { return describe_sharded(describe(), options.auto_shard); },
          {options.end, options.prefetch_batches},
          here};
}

}  // namespace detail

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
  return detail::make_sharded_iterator<Batch>(
      strategy, std::move(input_fn), [] { return "an input function"; }, options, here);
}

/// The same with default options.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, detail::InputFn<Batch> input_fn,
                                                  Here here = Here::current()) {
  return make_input_fn_iterator<Batch>(strategy, std::move(input_fn), InputOptions{}, here);
}

/// The same with default options. InvalidArgument for any mode other than InputOptions::ReplicationMode::per_worker.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, detail::InputFn<Batch> input_fn,
                                                  InputOptions::ReplicationMode mode, Here here = Here::current()) {
  detail::require_supported(mode);
  return make_input_fn_iterator<Batch>(strategy, std::move(input_fn), InputOptions{}, here);
}

}  // namespace lockstep
