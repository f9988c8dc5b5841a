// Loops of steps: what a step may record while the loop runs, and what the loop returns.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/strategy/context.hpp>
#include <lockstep/strategy/extended.hpp>
#include <lockstep/strategy/named_values.hpp>
#include <lockstep/strategy/replica_context.hpp>

namespace lockstep {

/// Collects the outputs of the steps of StrategyExtended::run_steps_on_iterator. Exists while the loop runs.
///
/// Setting an output again replaces its value, so the loop returns the last step's outputs. An output that the last
/// step did not set keeps its value from an earlier step or from `initial`.
class MultiStepContext {
 public:
  MultiStepContext(const MultiStepContext&) = delete;
  MultiStepContext& operator=(const MultiStepContext&) = delete;

  /// LOCAL, in cross-replica context. Keeps the value as it is: a PerReplica<T>, a Mirrored<T> or a plain T. A Tensor
  /// shares its memory, which the next step may overwrite. InvalidArgument in replica context, where an output needs a
  /// ReduceOp.
  template <class T>
  requires(is_per_replica<T> || NotPerReplica<T>) void set_last_step_output(std::string_view name, T value) {
    require_cross_replica(name);
    last_step_outputs_.set(name, std::move(value));
  }

  /// COLL, blocking, one agreement, in cross-replica context. Reduces the value over the replicas and keeps it as
  /// Mirrored<T>. This happens in every step, not only in the last. MismatchError if ranks set different names, or
  /// values of different shapes or types.
  template <Reducible T>
  void set_last_step_output(std::string_view name, const PerReplica<T>& value, ReduceOp op,
                            Here here = Here::current()) {
    set_reduced<T>(name, extended_.reduce_to(op, PerReplica{named(name, value.local())}, here).value());
  }

  /// In replica context COLL, blocking: one merge_call reduces this replica's value and keeps it as above. In
  /// cross-replica context LOCAL, like Strategy::reduce of a value that is not PerReplica: the mean keeps the value as
  /// T; InvalidArgument for the sum over several replicas.
  template <Reducible T>
  void set_last_step_output(std::string_view name, const T& value, ReduceOp op, Here here = Here::current()) {
    if (ReplicaContext* const context = replica_context()) {
      set_reduced<T>(name, context->all_reduce(op, named(name, value), here));
    } else {
      last_step_outputs_.set(name, extended_.reduce_to(op, value, here));
    }
  }

  /// LOCAL, in cross-replica context. The mean keeps the value as Mirrored<T>; InvalidArgument for the sum.
  template <class T>
  void set_last_step_output(std::string_view name, const Mirrored<T>& value, ReduceOp op, Here here = Here::current()) {
    last_step_outputs_.set(name, extended_.reduce_to(op, value, here));
  }

  /// LOCAL, in any context. Keeps this rank's own object, of any type. Nothing is sent.
  template <class T>
  void set_non_tensor_output(std::string_view name, T value) {
    non_tensor_outputs_.set(name, std::move(value));
  }

  /// LOCAL. The outputs so far.
  const NamedValues& last_step_outputs() const { return last_step_outputs_; }
  const NamedValues& non_tensor_outputs() const { return non_tensor_outputs_; }

 private:
  friend class StrategyExtended;
  MultiStepContext(StrategyExtended& extended, NamedValues initial)
      : extended_{extended}, last_step_outputs_{std::move(initial)} {}

  static void require_cross_replica(std::string_view name);

  /// The value under its name: the keys of a map are part of what the ranks agree on.
  template <class T>
  using Named = std::map<std::string, T>;
  template <class T>
  static Named<T> named(std::string_view name, const T& value) {
    return {{std::string{name}, value}};
  }
  template <class T>
  void set_reduced(std::string_view name, const Named<T>& reduced) {
    last_step_outputs_.set(name, detail::MirroredAccess::make(reduced.begin()->second));
  }

  StrategyExtended& extended_;
  NamedValues last_step_outputs_;
  NamedValues non_tensor_outputs_;
};

template <DistributedInput Input, StepFunction<Input> Fn>
StepsResult StrategyExtended::run_steps_on_iterator(Fn&& fn, Input& input, std::int64_t steps, NamedValues initial,
                                                    Here here) {
  MultiStepContext context{*this, std::move(initial)};
  const std::int64_t run = run_steps(
      steps,
      [&] {
        const auto next = input.next(here);
        if (next) std::invoke(fn, context, *next);
        return next.has_value();
      },
      here);
  return {run, std::move(context.last_step_outputs_), std::move(context.non_tensor_outputs_)};
}

}  // namespace lockstep
