// Loops of steps: what a step may record while the loop runs, and what the loop returns.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

namespace lockstep {

/// Collects the outputs of the steps of run_steps_on_iterator. Exists while the loop runs.
///
/// Setting an output again replaces its value, so the loop returns the last step's outputs. An output that the last
/// step did not set keeps its value from an earlier step or from `initial`.
class LOCKSTEP_API MultiStepContext {
 public:
  /// Values of any type by name. A value can be read only as the type it was set as, locality included: a
  /// PerReplica<double> is not a Mirrored<double>. Values must be copyable, and a copy of this object has its own.
  class Outputs {
   public:
    /// Replaces what the name held, whatever its type.
    template <class T>
    void set(std::string_view name, T value) {
      values_.insert_or_assign(std::string{name}, std::any{std::move(value)});
    }

    /// The reference is valid until the name is set again. InvalidArgument, which lists what there is, if the name was
    /// not set or its value has another type.
    template <class T>
    const T& get(std::string_view name) const {
      const auto found = values_.find(name);
      const T* const value = found == values_.end() ? nullptr : std::any_cast<T>(&found->second);
      if (!value) refuse(name, typeid(T));
      return *value;
    }

    bool contains(std::string_view name) const { return values_.find(name) != values_.end(); }
    bool empty() const { return values_.empty(); }

   private:
    [[noreturn]] void refuse(std::string_view name, const std::type_info& wanted) const;

    std::map<std::string, std::any, std::less<>> values_;
  };

  /// What the loop returns.
  struct Result {
    std::int64_t steps_run = 0;  ///< fewer than asked for if the input ended
    Outputs last_step_outputs;   ///< Mirrored<T> if reduced over the replicas, else as they were set
    Outputs non_tensor_outputs;  ///< this rank's own objects
  };

  MultiStepContext(const StrategyExtended& extended, Outputs initial)
      : extended_{extended}, last_step_outputs_{std::move(initial)} {}
  MultiStepContext(const MultiStepContext&) = delete;
  MultiStepContext& operator=(const MultiStepContext&) = delete;

  /// LOCAL, in cross-replica context. Keeps the value unchanged: a PerReplica<T>, a Mirrored<T> or a plain T. A Tensor
  /// shares its memory, which the next step may overwrite. InvalidArgument in replica context: give a ReduceOp there.
  template <class T>
    requires(detail::is_per_replica<T> || detail::is_mirrored<T> || detail::Reducible<T>)
  void set_last_step_output(std::string_view name, T value) {
    require_cross_replica(name);
    last_step_outputs_.set(name, std::move(value));
  }

  /// COLL, blocking, one agreement, in cross-replica context. Reduces the value over the replicas and keeps it as
  /// Mirrored<T>. This happens in every step. MismatchError for different names, shapes or types.
  template <detail::Reducible T>
  void set_last_step_output(std::string_view name, const PerReplica<T>& value, ReduceOp op,
                            Here here = Here::current()) {
    set_reduced<T>(name, extended_.reduce_to(op, PerReplica{named(name, value.local())}, here).value());
  }

  /// In replica context COLL, blocking: one merge_call reduces this replica's value and keeps the result. In
  /// cross-replica context LOCAL, like Strategy::reduce of a value that is not PerReplica: the mean keeps the value as
  /// T; InvalidArgument for the sum over several replicas.
  template <detail::Reducible T>
  void set_last_step_output(std::string_view name, const T& value, ReduceOp op, Here here = Here::current()) {
    if (ReplicaContext* const context = ReplicaContext::current()) {
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
  const Outputs& last_step_outputs() const { return last_step_outputs_; }
  const Outputs& non_tensor_outputs() const { return non_tensor_outputs_; }

 private:
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

  StrategyExtended extended_;
  Outputs last_step_outputs_;
  Outputs non_tensor_outputs_;
};

namespace detail {

/// A function that a loop of steps can call: `fn(context, input)`, with the PerReplica that the input gives.
template <class Fn, class Input>
concept StepFunction = std::invocable<Fn&, MultiStepContext&, const next_input_t<Input>&>;

/// COLL, blocking. The loop of run_steps_on_iterator. Calls `step` in the strategy's scope until it returns false, and
/// up to `steps` times, which the ranks agree on. Returns how often it returned true. An exception that leaves `step`
/// on one rank is rethrown there, and the others throw PeerError.
LOCKSTEP_API std::int64_t run_steps(Strategy& strategy, std::int64_t steps, const std::function<bool()>& step,
                                    const Here& here);

}  // namespace detail

/// COLL, blocking. Calls `fn(context, input)` up to `steps` times, each time with the next input. The calls are in
/// the scope of `strategy`, so in cross-replica context: `fn` calls Strategy::run itself. All ranks leave the loop at
/// the same step. If the input ends early, `steps_run` is smaller than `steps`.
///
/// `initial` holds the outputs until a step sets them. The ranks agree on the number of steps once, at the start:
/// MismatchError if it differs, InvalidArgument if it is negative. An exception that leaves `fn` on one rank is
/// rethrown there, and the others throw PeerError.
template <detail::DistributedInput Input, detail::StepFunction<Input> Fn>
MultiStepContext::Result run_steps_on_iterator(Strategy& strategy, Fn&& fn, Input& input, std::int64_t steps = 1,
                                               MultiStepContext::Outputs initial = {}, Here here = Here::current()) {
  MultiStepContext context{StrategyExtended{strategy}, std::move(initial)};
  const std::int64_t run = detail::run_steps(
      strategy, steps,
      [&] {
        const auto next = input.next(here);
        if (next) std::invoke(fn, context, *next);
        return next.has_value();
      },
      here);
  return {run, context.last_step_outputs(), context.non_tensor_outputs()};
}

}  // namespace lockstep
