// Injected faults: a trainer fails on request, so that its ways out can be tested.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/sync/strategy/variable.hpp>

#include "core/control/busy_clock.hpp"

namespace lockstep {

/// `KIND:RANK:STEP`: what one rank does in one step, counted from 0; messages count from 1, as all that users see. It
/// happens after the backward pass, between the step's agreement and its last sum over the ranks. Only skip-merge comes
/// before the agreement. Or `slow:RANK:FACTOR[:PART]`, for the whole training. Or `miscompute:RANK:STEP[:once|always]`.
struct InjectedFault {
  enum class Kind : std::uint8_t {
    throws,        ///< "throw": replica code throws
    exits,         ///< "exit": the process exits with code 0, without a word
    kills,         ///< "kill": SIGKILL
    stops,         ///< "stop": SIGSTOP
    hangs,         ///< "hang": the thread that computes waits for ever
    skips_merge,   ///< "skip-merge": replica code returns without the optimizer's merge_call
    flips,         ///< "flip": one bit of one weight flips, and training continues
    asks_to_stop,  ///< "usr1": SIGUSR1, as from a scheduler
    slows,         ///< "slow": its own work in a part of each step takes longer
    /// "miscompute": one bit of a gradient is another one: of one of its shards in that step, or from that step on of
    /// every shard that it computes, its own or another's.
    miscomputes,
    misreads  ///< "misread": one bit of one sample of each shard that it reads in that step is another one
  };

  Kind kind;
  int rank;
  std::int64_t step;

  /// For `slows`: how many times as long the work takes, and in which part; in both passes if that is empty.
  double factor = 1;
  std::optional<BusyClock::Part> part = {};

  bool always = false;  ///< for `miscomputes`

  /// ConfigError, naming LOCKSTEP_FAULT and what was expected, unless `text` is a fault of one of `ranks` ranks.
  static InjectedFault parse(std::string_view text, int ranks);

  /// Parses the environment variable LOCKSTEP_FAULT; empty if it is not set.
  static std::optional<InjectedFault> from_environment(int ranks);

  /// LOCAL. Whether this rank is to return from replica code without merging.
  bool skips_merge(int at_rank, std::int64_t at_step) const;

  /// LOCAL. Whether this rank computes shard number `shard` of its own `shards` wrong in the step, in its own part of
  /// the step; whether it computes wrong whatever it computes after that; and whether it reads wrong.
  bool miscomputes(int at_rank, std::int64_t at_step, std::int64_t shard, std::int64_t shards) const;
  bool miscomputes_still(int at_rank, std::int64_t at_step) const;
  bool misreads(int at_rank, std::int64_t at_step) const;

  /// LOCAL. Flips a bit of the gradient of a variable, unless the step has chosen another one of `variables`.
  void miscompute(const TensorView& gradient, std::size_t variable, std::size_t variables, Stream& stream) const;

  /// LOCAL. Flips a bit of an input: the highest of a number's mantissa, or the lowest of an integer (i32).
  void misread(const SampleBatch& samples, Stream& stream) const;

  /// LOCAL. If this is the rank to be slow, makes `clock` slow it down.
  void slow_down(BusyClock& clock, int at_rank) const;

  /// What is going to happen, for a warning: "replica 1 will fail (throw) in step 5".
  std::string announcement() const;

  /// LOCAL. Injects any other fault if this is its rank and its step.
  ///
  /// A flip inverts the highest mantissa bit of one of `weights` (f32 or f64). The weight grows by up to a half or
  /// shrinks by up to a third, and no step that all ranks make alike undoes that. The step seeds the choice of the
  /// weight: first the variable, all equally likely, then the element. From that element on, the first normal number is
  /// taken: a flipped 0 or subnormal would be too small to survive the next step. Error if there is no normal number.
  void strike(int at_rank, std::int64_t at_step, std::span<const Variable> weights) const;

 private:
  void flip_in(const TensorView& values, Stream& stream) const;
};

/// "throw", "skip-merge".
std::string_view name_of(InjectedFault::Kind kind);

/// What `fit` does, with `fault`, if there is one. Announces it in one warning on rank 0.
FitResult fit_with_fault(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const FitOptions::Samples& data,
                         const FitOptions& options, Observer& observer, const std::optional<InjectedFault>& fault,
                         Here here = Here::current());

}  // namespace lockstep
