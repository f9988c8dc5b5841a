// The strategy: one model, one replica of it on each rank, in lockstep.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/device/stream.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>
#include <lockstep/sync/strategy/reduce_call.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

class Reductions;
class ReplicaGroup;
class VariableStore;

namespace detail {

struct Frame;

/// Where a step, or a loop of steps, takes its inputs from, such as a DistributedIterator. `next(here)` is COLL: every
/// rank gets its component of the next input, or, at the end, every rank gets nothing.
template <class T>
concept DistributedInput = requires(T& input, Here here) {
  requires is_per_replica<typename std::remove_cvref_t<decltype(input.next(here))>::value_type>;
};

/// The PerReplica that `next` returns.
template <DistributedInput T>
using next_input_t = typename std::remove_cvref_t<decltype(std::declval<T&>().next(Here{}))>::value_type;

struct Comparison;
enum class TagKind : std::uint8_t;

/// A function that `run` can call with arguments of the types T, each as replica code sees it (local_t).
template <class Fn, class... T>
concept ReplicaFunctionFor = std::invocable<Fn, ReplicaContext&, local_t<T>...>;

}  // namespace detail

/// Makes a strategy current, in cross-replica context, until it is destroyed. Scopes nest like blocks.
class LOCKSTEP_API Scope {
 public:
  Scope(const Scope&) = delete;  // a scope ends with its block: contexts nest
  Scope& operator=(const Scope&) = delete;
  ~Scope();

 private:
  friend class Strategy;
  friend struct detail::Inside<Scope>;
  Scope(Strategy& strategy, const Here& here);
  explicit Scope(const detail::Frame& frame);
};

/// Owns variables and determines which ranks compute together. Move-only: a copy would share the ranks but not their
/// order of collectives. The ranks of a group must make its strategies in the same order. Not thread-safe.
class LOCKSTEP_API Strategy {
 public:
  /// What a user calls an outermost run: `step`, `evaluation`, `setup`, `sample` or `prediction` (here.hpp).
  using RunKind = detail::RunKind;

  /// LOCAL. The strategy whose scope, run or merge function this is. Outside all of them it is the default strategy,
  /// which has one replica and no communication.
  static Strategy& current();

  /// LOCAL. Whether a strategy is current, other than the default one.
  static bool has_current();

  /// LOCAL. True in a scope, a merge function and an update function; false elsewhere.
  static bool in_cross_replica_context();

  /// LOCAL. True in a function called by `update` or `update_non_slot`: an assignment goes to this rank's component.
  static bool in_update_context();

  /// LOCAL, in any context. Whether this rank records summaries, so that each is written once and not by every replica:
  /// true on replica 0 of the current strategy only, in replica and cross-replica context alike. Code that only this
  /// rank runs may make no COLL call. A variable's `local` is LOCAL even where reading the variable is COLL. True under
  /// the default strategy, which knows no other replica.
  static bool should_record_summaries();

  /// COLL over `ranks`, agreed, blocking. Makes a strategy on the ranks of a group, with a store of its own. It keeps
  /// the group, and must not outlive the runtime. Throws as `make_sibling` does.
  explicit Strategy(const Group& ranks, const ReductionOptions& reductions = {}, Here here = Here::current());

  Strategy(const Strategy&) = delete;  // move it: a copy would have an order of collectives of its own
  /// Open scopes, runs and replica contexts follow the strategy, but not the reference that a merge function received.
  Strategy(Strategy&&) noexcept;
  Strategy& operator=(const Strategy&) = delete;
  ~Strategy();

  /// LOCAL. Enters cross-replica context until the result is destroyed. ContextError in replica context or under
  /// another strategy. The default strategy does not count as another; its own scope may not begin under any other.
  [[nodiscard("the scope ends when this value goes: give it a name")]] Scope scope(Here here = Here::current());

  /// COLL, agreed, blocking. Makes another strategy, with a store of its own, on the same ranks. It must not outlive
  /// the runtime. MismatchError if the ranks' options differ; InvalidArgument, before any agreement, for invalid ones
  /// (ReductionOptions). The functions among the options are not compared.
  Strategy make_sibling(const ReductionOptions& reductions = {}, Here here = Here::current());

  /// LOCAL, in any context. The reference stays valid when the strategy is moved.
  VariableStore& store();

  /// LOCAL, in any context. The ranks that this strategy spans, as a group.
  Group ranks() const;

  /// LOCAL, in any context. This rank's place among them: 0 on the chief.
  int rank() const;

  /// LOCAL. The stream of this rank's device. Variables, gradients and optimizer slots live in that device's memory,
  /// and all work on them is enqueued on this stream.
  Stream& stream();

  int num_replicas_in_sync() const;

  /// How messages call it: "strategy 0", "strategy 0 of replicas 3, 1" on some of the ranks, or "the default strategy".
  std::string name() const;

  /// COLL, agreed, blocking. Calls `initial` on every rank and keeps replica 0's value. The next `seal` allocates the
  /// memory. MismatchError if the ranks ask for different names, or differ in shape, type or options. If `initial`
  /// throws on one rank, the exception is rethrown there and the others throw PeerError. InvalidArgument, before any
  /// communication, for options that no mirrored variable can have. ContextError in another strategy's context.
  MirroredVariable create_variable(Variable::Options options, const std::function<Tensor()>& initial,
                                   Here here = Here::current());

  /// COLL, agreed, blocking. Like create_variable, but replica 0's initial value only starts each replica's component,
  /// which from then on is that replica's own. Never trainable, whatever the options say. InvalidArgument for the
  /// synchronizations `on_write` and `none`.
  SyncOnReadVariable create_sync_on_read(Variable::Options options, const std::function<Tensor()>& initial,
                                         Here here = Here::current());

  /// COLL, blocking, in cross-replica or default context. Allocates the variables created since the last call and sets
  /// them to replica 0's initial values on every rank. The first outermost `run` after a creation does it too. If the
  /// allocation fails on one rank, the exception is rethrown there and the others throw PeerError.
  void seal(Here here = Here::current());

  /// COLL, blocking, in cross-replica or default context. Overwrites every sealed mirrored variable and the optimizer
  /// state with replica 0's, on all ranks, to recover from a failed step. A variable that one rank alone updates
  /// (ReplicateOptions::Placement) gets that rank's value. Sync-on-read variables keep their values, since each rank's
  /// is its own. State in slices (ReductionOptions::shard_optimizer) stays as each rank has it: to recover, go on from
  /// a checkpoint instead. MismatchError if ranks have different pieces of optimizer state.
  void rebroadcast(Here here = Here::current());

  /// COLL, blocking, in cross-replica or default context. Proves, by comparing digests, that every sealed mirrored
  /// variable and every piece of optimizer state holds the same bytes on every rank. If not, every rank throws a
  /// DriftError, which names the first value that differs and the replicas outside the majority. Costs one agreement if
  /// all is well. Waits for all work on the device.
  ///
  /// Sync-on-read variables differ by nature and are skipped, except for those in `alike`, which the program keeps the
  /// same everywhere. So is optimizer state that one rank alone holds (ReplicateOptions::Placement). MismatchError if
  /// ranks have different variables or different optimizer state. ContextError, on this rank alone and before the
  /// agreement, if one in `alike` is another strategy's or has no memory. ReplicaContext::attest_at_end does the same
  /// during a step, without an agreement of its own.
  void attest(const std::vector<SyncOnReadVariable>& alike = {}, Here here = Here::current());

  /// LOCAL; call it on every rank. Sets how many of the next steps of a training attest by themselves; if 0, none. This
  /// finds gradients that were not summed over the ranks. Unless it is called, the number is 2; the count begins again
  /// after `rebroadcast` and after a restored checkpoint. In the agreement that ends such a run, the ranks compare
  /// digests of the trainable variables, and of the gradients given to Optimizer::apply_reduced_gradients. If they
  /// differ, every rank throws DriftError. This costs no message, and the time to read the variables once.
  ///
  /// A run is a step if an Optimizer made one in it, or if the variables differ from those after the run before. Up to
  /// 8 runs that change nothing are compared too. Evaluations (`set_step`) are not, nor are runs that end while the
  /// stream is being captured into a CUDA graph. InvalidArgument for a negative number.
  void attest_first(int steps);

  /// COLL; blocks at its end, which is agreed. Calls `fn(context, …)` once on this rank, in replica context:
  /// `run(step, args(a, b))` calls `step(context, a, b)`, with this rank's component of PerReplica and Mirrored
  /// arguments. An exception that leaves `fn` on one rank is rethrown there, and the others throw PeerError. If the
  /// results differ in structure (list lengths or map keys; an optional may be empty on some ranks), every rank throws
  /// MismatchError. A returned reference is kept as a value. May be called again inside a merge function; ContextError
  /// in replica context or under another strategy. `fn` has the floating-point modes with which a process starts
  /// (rounding, subnormal numbers), whatever the program has set; afterwards they are the program's again.
  template <class Fn, class... T>
    requires detail::ReplicaFunctionFor<Fn, T...>
  auto run(Fn&& fn, detail::Args<T...> arguments = {}, Here here = Here::current()) {
    using Result = detail::value_result_t<Fn, ReplicaContext&, detail::local_t<T>...>;
    if constexpr (std::is_void_v<Result>) {
      run_replica(here, [&](ReplicaContext& context) {
        detail::invoke_as<detail::local_t, Result>(std::forward<Fn>(fn), arguments, context);
        return std::string{};
      });
      return PerReplica<void>{};
    } else {
      std::optional<Result> result;
      run_replica(here, [&](ReplicaContext& context) {
        result.emplace(detail::invoke_as<detail::local_t, Result>(std::forward<Fn>(fn), arguments, context));
        // An optional may be empty on some ranks, as after a reduction to one replica.
        return detail::signature(*result, detail::Optionals::by_type);
      });
      return PerReplica<Result>{*std::move(result)};
    }
  }

  /// LOCAL. Says which step, from 1, the next outermost runs belong to, so that messages count as the program does: a
  /// program that also evaluates by runs calls it before each. Without it, each outermost run counts as the next step:
  /// from 1 or, once CheckpointManager has restored a training, after the checkpoint's. InvalidArgument if `step` is
  /// negative, or 0 for a step or an evaluation.
  void set_step(std::int64_t step, RunKind kind = RunKind::step);

  /// LOCAL, from any thread or signal handler. Asks for an early end of the job, for good. The agreement that ends the
  /// next run of each strategy in which this rank takes part tells the other ranks of that strategy.
  /// RuntimeOptions::stop_signal does the same for a signal.
  void request_stop() noexcept;

  /// LOCAL. Whether any rank had asked for an early end by the end of the last run: the same on all ranks between runs.
  bool stop_requested() const;

  /// COLL. One step on the next input, such as a DistributedIterator's: takes it in this strategy's scope, then calls
  /// `run(fn, args(input))`. `input` may have any type with a COLL `next(here)` that returns an optional PerReplica.
  /// Returns nothing, on every rank, if the input is at its end.
  template <class Fn, detail::DistributedInput Input>
    requires detail::ReplicaFunctionFor<Fn, detail::next_input_t<Input>>
  auto run_on_next(Fn&& fn, Input& input, Here here = Here::current()) {
    const Scope in_scope = scope(here);
    auto next = input.next(here);
    using Result = decltype(run(std::forward<Fn>(fn), args(*std::move(next)), here));
    if (!next) return std::optional<Result>{};
    return std::optional<Result>{run(std::forward<Fn>(fn), args(*std::move(next)), here)};
  }

  /// Reduces every leaf of `value` over the replicas, in this strategy's cross-replica context or the default one;
  /// every rank gets the result. The type of `value` decides how:
  ///
  /// - A PerReplica: COLL, blocking, agreed. MismatchError if operations, shapes or types differ between ranks, or if
  ///   one rank's tensors are on the host and another's on a GPU. InvalidArgument, before any communication, for the
  ///   mean of integers and for malformed slices (their parts do not fit together, or an index is outside the rows).
  ///   Returns when the ranks have agreed, with a result that is complete or, on a GPU, enqueued on `stream()`.
  /// - A Mirrored or plain value: LOCAL. The mean is the value itself. On one replica, the sum of a plain value is a
  ///   copy on the same device. InvalidArgument for the sum of a Mirrored, and for the sum of a plain value over
  ///   several replicas: neither says what each replica contributes.
  template <detail::ReducibleValue T>
  detail::reduced_t<T> reduce(ReduceOp op, const T& value, Here here = Here::current()) {
    return reduced(detail::ReduceCall{*this, "reduce", op, here}, value);
  }

  /// COLL, blocking, one agreement, in this strategy's contexts or the default one. Proves that a host value is the
  /// same on every rank by comparing its digest. If not, MismatchError, which names the rank.
  template <detail::ComparableAcrossRanks T>
  Mirrored<T> same_on_all(T value, Here here = Here::current()) {
    compare(detail::comparable_text(value), here);
    return detail::MirroredAccess::make(std::move(value));
  }

  /// COLL, blocking, one agreement, in this strategy's contexts or the default one. Gives every rank the value that
  /// replica 0 passes, such as a text of any length or a struct; what the other ranks pass is ignored. MismatchError if
  /// the ranks pass different types, or structs of different sizes. Costs one message, and another one and a second
  /// agreement if the value takes more than 1 KB. The value travels as it lies in memory, so all ranks need the same
  /// byte order. Members that a struct's Nest does not name get their default values.
  template <detail::BroadcastableObject T>
    requires(!std::invocable<const T&>)
  Mirrored<T> broadcast_object(const T& value, Here here = Here::current()) {
    return broadcast<T>([&]() -> const T& { return value; }, here);
  }
  Mirrored<std::string> broadcast_object(std::string_view text, Here here = Here::current()) {
    return broadcast<std::string>([&] { return std::string{text}; }, here);
  }

  /// The same for the value that `make()` returns. It is called on replica 0 only, while the others wait for it,
  /// however long it takes. If it throws, the exception is rethrown there and the others throw PeerError.
  template <std::invocable Make>
    requires detail::BroadcastableObject<detail::value_result_t<Make>>
  Mirrored<detail::value_result_t<Make>> broadcast_object(Make&& make, Here here = Here::current()) {
    return broadcast<detail::value_result_t<Make>>(make, here);
  }

  /// LOCAL, in any context. What this process holds of `value`: always one component.
  template <class T>
  std::vector<detail::local_t<T>> local_results(const T& value) const {
    return {detail::as<detail::local_t>(value)};
  }

  /// LOCAL, blocking, in any context. Returns when all work that this rank has enqueued on `stream()` is done. With one
  /// argument, returns this rank's component of it.
  template <class T>
  detail::local_t<T> synchronize(const T& value) {
    synchronize();
    if constexpr (!std::is_void_v<detail::local_t<T>>) return detail::as<detail::local_t>(value);
  }
  template <class... T>
  void synchronize(const T&...) {
    stream().synchronize();
  }

 private:
  friend struct detail::Inside<Strategy>;
  friend class detail::StrategyAddress;
  struct Core;

  explicit Strategy(ReplicaGroup& group, const ReductionOptions& reductions = {});
  ReplicaGroup& group();
  Reductions& reductions();
  void require_not_captured(const Here& here);
  void agree(detail::TagKind kind, const Here& here, std::string_view text);
  void agree(detail::TagKind kind, const Here& here, std::string_view text, const detail::Comparison& comparison);

  void stop_sharing(const std::string& failure, const Here& here);

  /// `fn` returns the text that the ranks compare at the end of the run.
  void run_replica(const Here& place, const std::function<std::string(ReplicaContext&)>& fn);
  void compare(const std::string& text, const Here& here);

  using Send = std::function<void(const void* value)>;
  /// `make` sends a value on replica 0. On every rank, `received`, which is blank, becomes that.
  void broadcast_into(detail::AnyValue received, const std::function<void(const Send&)>& make, const Here& here);
  template <class T, class Make>
  Mirrored<T> broadcast(Make&& make, const Here& here) {
    T received = detail::blank<T>();
    const auto send_made = [&](const Send& send) { send(&static_cast<const T&>(std::invoke(make))); };
    broadcast_into(received, send_made, here);
    return detail::MirroredAccess::make(std::move(received));
  }
  std::shared_ptr<detail::VariableState> create(Variable::Options options, Variable::Synchronization synchronization,
                                                const std::function<Tensor()>& initial, const Here& here);

  std::unique_ptr<Core> core_;
};

}  // namespace lockstep
