// Iterators over input: each rank draws batches of its own, and all ranks come to the end together.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/input/input_context.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/train/batch_outline.hpp>

namespace lockstep {

/// Gives the next batch at each call, and nothing at the end of its data. It is not called again then.
template <class Batch>
using Source = std::function<std::optional<Batch>()>;

/// Makes the source of this rank. `context` says which of the job's input pipelines that is.
template <class Batch>
using InputFn = std::function<Source<Batch>(const InputContext& context)>;

/// How ranks share the work of input.
enum class InputReplicationMode : std::uint8_t {
  per_worker,  ///< each rank has a pipeline of its own, and shares nothing of it
};

/// Takes inputs to Strategy::run_on_next and StrategyExtended::run_steps_on_iterator. Usable as soon as it is made.
/// Whatever it calls runs in the strategy's scope. The strategy must outlive it, and may be moved.
template <class Batch>
class DistributedIterator {
 public:
  /// Draws this rank's next batch, or nothing at the end of its data. Writes into `what` what must be the same on every
  /// rank, if anything, in words for the message where it is not.
  using Draw = std::function<std::optional<Batch>(std::string& what)>;

  /// COLL, one agreement: what the make_…_iterator functions stand on. `start` begins at the beginning: it is called
  /// now, and by every `initialize`. `describe` says over what this is an iterator, and is compared; it is called
  /// first.
  DistributedIterator(Strategy& strategy, std::function<Draw()> start, const std::function<std::string()>& describe,
                      Here here)
      : extended_{&strategy.extended()}, start_{std::move(start)} {
    extended_->agree_on_input(
        [&] {
          InputOffer iterator{.what = "an iterator over " + describe()};
          draw_ = start_();
          return iterator;
        },
        here);
  }
  DistributedIterator(DistributedIterator&&) noexcept = default;
  DistributedIterator& operator=(DistributedIterator&&) noexcept = default;

  /// COLL, blocking, one agreement, in cross-replica context. The next batch of each rank. The end, which is nothing,
  /// comes when every rank has come to the end of its data, and on all of them at once; until then a rank without data
  /// gets a batch without samples, and takes part in the step like the others.
  ///
  /// A batch without samples looks like the batch of the lowest rank that has one. Its tensors have the same element
  /// types, devices and extents, but a first extent of 0; a tensor without extents is 0. Vectors of tensors have the
  /// same length, and maps the same keys if those are integers, enums or strings. Everything else is
  /// default-constructed. A step in which a rank lacks a batch costs one more message, unless Batch has neither tensors
  /// nor such maps.
  ///
  /// An exception of the source on one rank goes on there and is a PeerError on the others. What they had drawn for
  /// that step is gone.
  std::optional<PerReplica<Batch>> next(Here here = Here::current()) {
    std::optional<Batch> own;
    const InputAnswer answer = extended_->agree_on_input(
        [&] {
          InputOffer offer;
          if (draw_) own = draw_(offer.what);
          if (!own) draw_ = nullptr;
          offer.any = own.has_value();
          if constexpr (detail::Outline<Batch>::needed) {
            if (own) offer.outline = detail::outline_of(*own);
            offer.lacks_outline = !own;
          }
          return offer;
        },
        here);
    if (!answer.any) return std::nullopt;
    if (own) return PerReplica<Batch>{*std::move(own)};
    if constexpr (detail::Outline<Batch>::needed) {
      return PerReplica<Batch>{detail::batch_without_samples<Batch>(answer.outline, extended_->strategy().stream())};
    } else {
      return PerReplica<Batch>{Batch{}};
    }
  }

  /// LOCAL, in cross-replica context. Starts over, from wherever it is: calls the input function again. An exception of
  /// that is thrown by `next`, where the other ranks hear of it.
  void initialize() {
    const Scope scope = extended_->strategy().scope();
    try {
      draw_ = start_();
    } catch (...) {
      draw_ = [failure = std::current_exception()](std::string&) -> std::optional<Batch> {
        std::rethrow_exception(failure);
      };
    }
  }

 private:
  StrategyExtended* extended_;  ///< unlike the strategy, it stays where it is
  std::function<Draw()> start_;
  Draw draw_;  ///< empty once this rank's data have ended
};

namespace detail {

/// The place of this rank's pipeline among those of the strategy: one a replica.
InputContext input_context_of(Strategy& strategy);

void require_supported(InputReplicationMode mode);

/// `maker` returned none.
[[noreturn]] void refuse_source(std::string_view maker);

}  // namespace detail

/// COLL, one agreement, in cross-replica context. Calls `input_fn` once on this rank, in the strategy's scope, with the
/// rank's place: as many pipelines as replicas, and this one's number is the rank. Its batches are those of one replica
/// (InputContext::per_replica_batch_size), and may be as many as they like on each rank.
///
/// An exception of `input_fn` goes on here and is a PeerError on the others. InvalidArgument where it returns no
/// source.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, InputFn<Batch> input_fn,
                                                  InputReplicationMode mode, Here here = Here::current()) {
  detail::require_supported(mode);
  const auto start = [input_fn = std::move(input_fn), context = detail::input_context_of(strategy)] {
    Source<Batch> source = input_fn(context);
    if (!source) detail::refuse_source("input_fn");
    return [source = std::move(source)](std::string&) { return source(); };
  };
  return {strategy, start, [] { return "an input function"; }, here};
}

/// The same with InputReplicationMode::per_worker.
template <class Batch>
DistributedIterator<Batch> make_input_fn_iterator(Strategy& strategy, InputFn<Batch> input_fn,
                                                  Here here = Here::current()) {
  return make_input_fn_iterator<Batch>(strategy, std::move(input_fn), InputReplicationMode::per_worker, here);
}

}  // namespace lockstep
