// Where an injected fault meets the steps of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/sync/strategy/variable.hpp>

#include "core/control/busy_clock.hpp"
#include "models/fit/injected_fault.hpp"

namespace lockstep {

/// What `fit` passes on its way through a step, with or without a fault. Every method is LOCAL, and does nothing
/// without one. Shards are numbered from 0 on the rank; those of other ranks are `foreign`.
class StepFaults {
 public:
  /// `shards` are the rank's own. `fault` and the stream must outlive this object.
  StepFaults(const std::optional<InjectedFault>& fault, int rank, std::int64_t shards, std::size_t variables,
             Stream& stream);

  static constexpr std::int64_t whole = -1;    ///< all of the rank's shards together
  static constexpr std::int64_t foreign = -2;  ///< one of another rank

  /// Before the first step.
  void slow_down(BusyClock& clock) const;

  /// Begins a step, counted from 0.
  void begin(std::int64_t step) { step_ = step; }

  /// Whether the rank is to return from replica code without making the step.
  bool skips_merge() const;

  /// The rank has read a batch.
  void read(const SampleBatch& batch) const;

  /// Whether the gradients of `shard` are to be spoilt.
  bool spoils(std::int64_t shard) const;

  /// The rank has computed the gradient of variable number `variable`.
  void computed(std::int64_t shard, std::size_t variable, const TensorView& gradient) const;

  /// The rank has computed all, and the last sum comes next. May throw, or not return.
  void end(std::span<const Variable> weights) const;

 private:
  const std::optional<InjectedFault>& fault_;
  int rank_;
  std::int64_t shards_;
  std::size_t variables_;
  Stream& stream_;
  std::int64_t step_ = 0;
};

}  // namespace lockstep
