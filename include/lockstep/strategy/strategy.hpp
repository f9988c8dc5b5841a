// The strategy: one model, one replica of it on each rank, in lockstep.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/strategy/context.hpp>
#include <lockstep/strategy/drift.hpp>
#include <lockstep/strategy/extended.hpp>
#include <lockstep/strategy/multi_step.hpp>
#include <lockstep/strategy/replica_context.hpp>
#include <lockstep/strategy/replica_group.hpp>
#include <lockstep/strategy/same_on_all.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/strategy/variable_store.hpp>

namespace lockstep {

/// What `run` calls with arguments of the types T: each as replica code sees it (local_t).
template <class Fn, class... T>
concept ReplicaFunctionFor = std::invocable<Fn, ReplicaContext&, local_t<T>...>;

/// Owns variables and says who computes with whom. Move-only: a copy would share ranks without sharing their order of
/// collectives. Every rank makes its strategies in the same order. Not thread-safe.
class Strategy {
 public:
  /// The strategy whose scope, run or merge function this is; outside of all, the default strategy: one replica, no
  /// communication.
  static Strategy& current();

  /// COLL, but not agreed (see `make_strategy`). On the ranks of `group`, which must outlive it. InvalidArgument for
  /// options that make no sense.
  explicit Strategy(ReplicaGroup& group, const ReductionOptions& reductions = {});
  Strategy(const Strategy&) = delete;  // move it: a copy would have an order of collectives of its own
  /// Scopes, runs and replica contexts that are open stay this strategy's, where it is now. A reference that a merge
  /// function has is to the object from before.
  Strategy(Strategy&&) noexcept;
  Strategy& operator=(const Strategy&) = delete;
  ~Strategy();

  /// LOCAL. Cross-replica context until the result goes. ContextError in replica context or under another strategy; the
  /// default strategy is none, and its own scope begins under no other.
  [[nodiscard("the scope ends when this value goes: give it a name")]] Scope scope();

  StrategyExtended& extended();
  VariableStore& store();
  ReplicaGroup& group();

  /// The data plane as this strategy was told to use it. Only for what an agreement covers. Never throws: a failure
  /// ends the job.
  CrossDeviceOps& reductions();

  /// LOCAL. The stream of this rank's device. Variables, gradients and optimizer slots are in that device's memory, and
  /// whatever works on them is enqueued there.
  Stream& stream();

  int num_replicas_in_sync() const;

  /// "strategy 0", or "the default strategy": how messages call it.
  std::string name() const;

  /// COLL, agreed. Calls `initial` on every rank; replica 0's value counts. Memory comes with the next `seal`.
  /// MismatchError when name, shape, type or options differ between ranks; PeerError when `initial` threw on another.
  /// InvalidArgument for options that no mirrored variable can have.
  MirroredVariable create_variable(VariableOptions options, const std::function<Tensor()>& initial,
                                   Here here = Here::current());

  /// COLL, agreed. As create_variable: replica 0's initial value begins every replica's component, which from then on
  /// is that replica's own. The result is not trainable, whatever the options say. InvalidArgument for the
  /// synchronizations `on_write` and `none`.
  SyncOnReadVariable create_sync_on_read(VariableOptions options, const std::function<Tensor()>& initial,
                                         Here here = Here::current());

  /// COLL, blocking. Gives the variables created since the last time their memory, and all ranks replica 0's initial
  /// values. The first outermost `run` after a creation does it too.
  void seal(Here here = Here::current());

  /// COLL, blocking. Replica 0's values of every sealed mirrored variable, and its optimizer state, on all ranks: after
  /// a failed step. Sync-on-read variables stay as they are, since each rank's value is its own. MismatchError where
  /// ranks have other pieces of optimizer state than others.
  void rebroadcast(Here here = Here::current());

  /// COLL, blocking, one agreement where all is well. Proves that every sealed mirrored variable and every piece of
  /// optimizer state holds the same bytes on every rank by comparing their digests; when they do not, DriftError on all
  /// ranks, which names the first that differs and the replicas that hold another value than most. Waits for all work
  /// of the device. Sync-on-read variables differ by nature, and are not looked at: but for those in `alike`, which the
  /// program keeps the same everywhere. MismatchError where ranks have other variables, or other optimizer state, than
  /// others; on this rank alone, before the agreement, ContextError for one of another strategy or without memory.
  /// ReplicaContext::attest_at_end does it in the course of a step, for no agreement.
  void attest(const std::vector<SyncOnReadVariable>& alike = {}, Here here = Here::current());

  /// COLL at its end, which is agreed: calls `fn(context, …)` once on this rank, in replica context, with this rank's
  /// component of PerReplica and Mirrored arguments. An exception that leaves `fn` on one rank goes on there and is a
  /// PeerError on the others; results of another structure (lists of other lengths, maps with other keys; an
  /// optional may be empty on some) are a MismatchError on all of them. Of a returned reference the value is kept. May
  /// be called again inside a merge function.
  template <class Fn, class... T>
  requires ReplicaFunctionFor<Fn, T...>
  auto run(Fn&& fn, const T&... arguments) -> PerReplica<detail::value_result_t<Fn, ReplicaContext&, local_t<T>...>> {
    using Result = detail::value_result_t<Fn, ReplicaContext&, local_t<T>...>;
    if constexpr (std::is_void_v<Result>) {
      run_replica([&](ReplicaContext& context) {
        std::invoke(std::forward<Fn>(fn), context, Locality<T>::to_local(arguments)...);
        return std::string{};
      });
      return {};
    } else {
      std::optional<Result> result;
      run_replica([&](ReplicaContext& context) {
        result.emplace(std::invoke(std::forward<Fn>(fn), context, Locality<T>::to_local(arguments)...));
        return detail::signature_of_result(*result);
      });
      return PerReplica<Result>{*std::move(result)};
    }
  }

  /// COLL. One step on the next input: `run(fn, input)`, with the input taken in this strategy's scope. Nothing, on
  /// every rank, where the input is at its end.
  template <class Fn, DistributedInput Input>
  requires ReplicaFunctionFor<Fn, next_input_t<Input>>
  auto run_on_next(Fn&& fn, Input& input, Here here = Here::current())
      -> std::optional<PerReplica<detail::value_result_t<Fn, ReplicaContext&, local_t<next_input_t<Input>>>>> {
    const Scope in_scope = scope();
    const auto next = input.next(here);
    if (!next) return std::nullopt;
    return run(std::forward<Fn>(fn), *next);
  }

  /// COLL, blocking. Every leaf of `value` reduced over the replicas; the result on every rank.
  template <Reducible T>
  T reduce(ReduceOp op, const PerReplica<T>& value, Here here = Here::current()) {
    return extended().reduce_to(op, value, here).value();
  }

  template <Reducible T>
  T reduce(ReduceOp op, const PerReplica<MapOutput<T>>& value, Here here = Here::current()) {
    return extended().reduce_to(op, value, here).value();
  }

  /// LOCAL. Of what is no PerReplica the mean, and on one replica the sum of a plain value: as extended().reduce_to.
  template <NotPerReplica T>
  local_t<T> reduce(ReduceOp op, const T& value, Here here = Here::current()) {
    return Locality<T>::to_local(extended().reduce_to(op, value, here));
  }

  /// COLL, one agreement. Proves that a host value is the same on every rank by comparing its digest; MismatchError
  /// that names the rank when it is not. In any context of this strategy.
  template <ComparableAcrossRanks T>
  Mirrored<T> same_on_all(T value, Here here = Here::current()) {
    compare(detail::comparable(value), here);
    return detail::MirroredAccess::make(std::move(value));
  }

  /// LOCAL, in any context. For library code that enqueues work before it meets the other ranks: ContextError while the
  /// stream is being captured into a CUDA graph.
  void require_not_captured();

  /// COLL, in any context. For library code: one agreement in this strategy's name, as MeetingPoint::agree.
  /// ContextError, before any communication, while the stream is being captured into a CUDA graph.
  void agree(TagKind kind, const Here& here, std::string_view text);

  /// LOCAL, in any context. What this process holds of `value`: one component, also of a value that is the same on all
  /// ranks or known to this one only.
  template <class T>
  std::vector<local_t<T>> local_results(const T& value) const {
    return {Locality<T>::to_local(value)};
  }

  /// LOCAL, blocking, in any context. Returns when everything that this rank has enqueued on its device is done. A
  /// group of one is that one: this rank's component of it.
  template <class T>
  local_t<T> group(const T& value) {
    stream().synchronize();
    if constexpr (!std::is_void_v<local_t<T>>) return Locality<T>::to_local(value);
  }
  template <class First, class Second, class... Rest>
  void group(const First&, const Second&, const Rest&...) {
    stream().synchronize();
  }

 private:
  friend class ReplicaContext;
  friend class StrategyExtended;
  struct Core;

  /// `fn` says what the ranks compare at the run's end.
  void run_replica(const std::function<std::string(ReplicaContext&)>& fn);
  void compare(const std::string& text, const Here& here);
  std::shared_ptr<detail::VariableState> create(VariableOptions options, VariableSynchronization synchronization,
                                                const std::function<Tensor()>& initial, const Here& here);

  std::unique_ptr<Core> core_;
};

/// COLL, agreed: a strategy on the ranks of `group`, which must outlive it, with a store of its own. MismatchError
/// where the ranks' options differ; InvalidArgument, before any agreement, for options that make no sense. Functions
/// that accumulate are not compared.
Strategy make_strategy(ReplicaGroup& group, const ReductionOptions& reductions = {}, Here here = Here::current());

}  // namespace lockstep
