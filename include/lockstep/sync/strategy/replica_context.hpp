// Replica code's view of its strategy.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/locality.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

class AgreedRegion;
class Reductions;
class ReplicaContext;
class Strategy;

namespace detail {

/// Where a strategy is, also after it was moved. Valid as long as the strategy.
class LOCKSTEP_API StrategyAddress {
 public:
  explicit StrategyAddress(Strategy& strategy);

  Strategy& strategy() const { return **place_; }

 private:
  Strategy* const* place_;
};

struct FirstStepNotes;

/// A function that `merge_call` can call with arguments of the types T, as merged_t.
template <class Fn, class... T>
concept MergeFunctionFor = std::invocable<Fn, Strategy&, merged_t<T>...>;

class StartedReduction;

/// Gives `result` the reduced leaves of `started`, which becomes null. As ReplicaContext::PendingReduction::wait.
LOCKSTEP_API void wait_for(std::shared_ptr<StartedReduction>& started, AnyValue result, const Here& here);

}  // namespace detail

/// Exists inside Strategy::run and is current except while a merge function runs. Outside every scope, the default
/// strategy's is current. The methods throw ContextError when this context is not current: in a merge function, and in
/// a run inside a merge function. Only num_replicas_in_sync and strategy need no context.
class LOCKSTEP_API ReplicaContext {
 public:
  /// What all_reduce_async returns. Wait for it in the run that started it, in any order.
  template <detail::Reducible Nest>
  class [[nodiscard("nothing can wait for this reduction: keep what all_reduce_async returns")]] PendingReduction {
   public:
    /// Blocks as `all_reduce` does, unless the sum has been made already, and returns what `all_reduce` would have
    /// returned. Costs no agreement, so ranks may wait at different places. Call it once. Throws what the sum threw,
    /// even if another call has thrown it before. ContextError if called again, outside of the run that started it, in
    /// a merge function, or while the stream is being captured into a CUDA graph.
    Nest wait(Here here = Here::current()) {
      detail::wait_for(started_, result_, here);
      return std::move(result_);
    }

   private:
    friend class ReplicaContext;
    PendingReduction(Nest like, std::shared_ptr<detail::StartedReduction> started)
        : result_{std::move(like)}, started_{std::move(started)} {}

    Nest result_;                                        ///< until `wait`, the operand
    std::shared_ptr<detail::StartedReduction> started_;  ///< null after wait
  };

  ReplicaContext(const ReplicaContext&) = delete;  // it belongs to one run and ends with it
  ReplicaContext& operator=(const ReplicaContext&) = delete;
  ~ReplicaContext();

  /// LOCAL. The current replica context, in the default context the default strategy's. Null in cross-replica context.
  static ReplicaContext* current();

  /// This replica's id, which is its rank, in [0, num_replicas_in_sync()).
  int replica_id_in_sync_group(Here here = Here::current()) const;
  /// The names of the devices that this replica computes on: always one, such as
  /// "/job:worker/task:1/device:GPU:0".
  std::vector<std::string> devices(Here here = Here::current()) const;

  int num_replicas_in_sync() const;
  /// The strategy at its current address: it may be moved during its run.
  Strategy& strategy() const { return address_.strategy(); }

  /// COLL, blocking. Leaves replica context, calls `fn(strategy, …)` once on every rank in cross-replica context, and
  /// returns the result unwrapped: this rank's component of a PerReplica, the value of a Mirrored. Variables and
  /// Mirrored arguments reach `fn` unchanged; every other leaf arrives as PerReplica.
  ///
  /// Every rank must make the same number of calls, in the same order, at the same places in the program, with
  /// arguments of the same structure; otherwise every rank throws MismatchError. If a rank fails instead of calling,
  /// the others throw PeerError. Within the outermost run, every later agreement throws that error again. ContextError,
  /// before any communication, while this rank's stream is being captured into a CUDA graph.
  template <class Fn, class... T>
    requires detail::MergeFunctionFor<Fn, T...>
  auto merge_call(Fn&& fn, detail::Args<T...> arguments = {}, Here here = Here::current()) {  // args(a, b)
    const std::string operands = detail::signature(arguments.values);
    // `fn` may return a reference to an argument.
    using Value = detail::value_result_t<Fn, Strategy&, detail::merged_t<T>...>;
    const auto call = [&](Strategy& strategy) {
      return detail::invoke_as<detail::merged_t, Value>(std::forward<Fn>(fn), arguments, strategy);
    };
    if constexpr (std::is_void_v<detail::local_t<Value>>) {
      merge(operands, here, [&](Strategy& strategy) { call(strategy); });
    } else {
      std::optional<Value> result;
      merge(operands, here, [&](Strategy& strategy) { result.emplace(call(strategy)); });
      return detail::as<detail::local_t>(*std::move(result));
    }
  }

  /// COLL, blocking. One merge_call that reduces every leaf of `nest` over the replicas; every rank gets the result.
  /// MismatchError if structure or shapes differ between ranks; InvalidArgument, before any communication, for the mean
  /// of integers. Its backward pass is all_reduce_gradient.
  template <detail::Reducible Nest>
  Nest all_reduce(ReduceOp op, const Nest& nest, Here here = Here::current()) {
    return reduced("all_reduce", op, nest, here);
  }

  /// COLL. all_reduce without the wait: agrees as all_reduce does, starts the reduction and returns. The handle's
  /// `wait` returns what all_reduce would have returned, to the last bit. `nest` is copied at the call. On GPUs, sums
  /// of dense tensors in the backend's order proceed while the program computes. All other sums (on the host, in
  /// another order, or of slices) are computed when they are waited for.
  ///
  /// One reduction is open at a time: before the next agreement of any kind, such as a merge_call, another
  /// all_reduce_async or the end of the run, each rank completes it. So ranks may wait at different places, and a rank
  /// that fails first contributes what it started. Errors as for all_reduce, at the call. If the run ends before the
  /// result was waited for, ContextError, which names the call.
  template <detail::Reducible Nest>
  PendingReduction<Nest> all_reduce_async(ReduceOp op, const Nest& nest, Here here = Here::current()) {
    return {nest, start(op, detail::description_of<Nest>(), &nest, here)};
  }

  /// COLL, blocking. The backward pass of `all_reduce(op, nest)`. `upstream` is the gradient of this rank's loss with
  /// respect to the result. Returns the gradient of the sum of all ranks' losses with respect to this rank's `nest`.
  /// Each rank's input enters every rank's result, so that is the all_reduce of the upstreams by the same operation.
  /// The ranks check that all of them call the backward pass here.
  template <detail::Reducible Nest>
  Nest all_reduce_gradient(ReduceOp op, const Nest& upstream, Here here = Here::current()) {
    return reduced("gradient of all_reduce", op, upstream, here);
  }

  /// COLL, blocking. One merge_call that concatenates every leaf of `nest` over the replicas, along its first dimension
  /// and in rank order; every rank gets the result, in new memory of the same device. Ranks may bring different numbers
  /// of rows, including none. MismatchError if structure, types or other extents differ between ranks; InvalidArgument,
  /// before any communication, for a tensor without dimensions.
  ///
  /// Its backward pass needs no method: it is this rank's rows of the sum of all ranks' upstream gradients.
  template <detail::Gatherable Nest>
  Nest all_gather(const Nest& nest, Here here = Here::current()) {
    Nest all = nest;
    gather(all, here);
    return all;
  }

  /// LOCAL, anywhere in replica code; returns at once. Does what Strategy::attest does, but at the end of this run and
  /// within the agreement that ends it: no extra message as long as the replicas are equal. Every rank must ask for it
  /// in the same runs with the same variables, else MismatchError at the end. If asked twice, the last call counts. An
  /// error in `alike` fails the run at its end. ContextError outside every run.
  void attest_at_end(std::vector<SyncOnReadVariable> alike = {}, Here here = Here::current());

 private:
  friend class Strategy;
  friend struct detail::Inside<ReplicaContext>;
  explicit ReplicaContext(const detail::StrategyAddress& address) : address_{address} {}

  void declared_merge(std::string_view batch, const std::function<void(Reductions&)>& fn, Here here);
  void declared_step(std::string_view batch, const std::function<void(Reductions&, AgreedRegion&)>& fn, Here here);

  void merge(std::string_view operands, const Here& here, const std::function<void(Strategy&)>& fn);
  void gather(detail::AnyValue nest, const Here& here);
  std::shared_ptr<detail::StartedReduction> start(ReduceOp op, const detail::Description& type, const void* nest,
                                                  const Here& here);
  std::shared_ptr<detail::StartedReduction> start(ReduceOp op, std::vector<detail::Leaf> leaves,
                                                  std::string_view structure, const Here& here);
  /// ContextError if nothing waited for the result of a reduction.
  void require_waited_for() const;

  /// `method` is its name in the tag.
  void reduce(std::string_view method, ReduceOp op, detail::AnyValue nest, const Here& here);
  template <detail::Reducible Nest>
  Nest reduced(std::string_view method, ReduceOp op, Nest nest, const Here& here) {
    reduce(method, op, nest, here);
    return nest;
  }

  detail::StrategyAddress address_;
  std::optional<std::vector<SyncOnReadVariable>> attested_at_end_;  ///< the argument of `attest_at_end`
  Here attested_from_;                                              ///< where that was called
  std::shared_ptr<detail::FirstStepNotes> first_step_;              ///< may be null
  std::vector<std::shared_ptr<detail::StartedReduction>> started_;  ///< and not waited for
};

}  // namespace lockstep
