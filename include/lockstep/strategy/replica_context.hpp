// What replica code sees of its strategy.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/control/tag.hpp>
#include <lockstep/reduce/cross_device_ops.hpp>
#include <lockstep/strategy/signature.hpp>
#include <lockstep/strategy/variable.hpp>
#include <lockstep/values/locality.hpp>
#include <lockstep/values/nest.hpp>

namespace lockstep {

class Strategy;
class StrategyExtended;

namespace detail {
struct Defaults;
}

/// What `merge_call` calls with arguments of the types T: each as it is after merging (merged_t), a plain T as a
/// PerReplica<T>.
template <class Fn, class... T>
concept MergeFunctionFor = std::invocable<Fn, Strategy&, merged_t<T>...>;

/// Exists inside Strategy::run, and is current except while a merge function runs; outside of every scope there is the
/// default one, of the default strategy. Its methods throw ContextError when it is not the current one (used in a merge
/// function, or in a run inside of that); num_replicas_in_sync and strategy need no context.
class ReplicaContext {
 public:
  ReplicaContext(const ReplicaContext&) = delete;  // it is one run's, and goes with it
  ReplicaContext& operator=(const ReplicaContext&) = delete;

  /// This rank, in [0, num_replicas_in_sync()).
  int replica_id_in_sync_group() const;
  /// The names of the devices that this replica computes on: one, as StrategyExtended::worker_devices has it.
  std::vector<std::string> devices() const;

  int num_replicas_in_sync() const;
  /// The object that the strategy is now: it may be moved during its run.
  Strategy& strategy() const;

  /// COLL, blocking. Leaves replica context, calls `fn(strategy, …)` on every rank in cross-replica context, and
  /// returns its result unwrapped (this rank's component of a PerReplica, the value of a Mirrored). Variables and
  /// Mirrored arguments reach `fn` as they are, every other leaf as PerReplica.
  ///
  /// Every rank must call it equally often, in the same order, at the same place in the program, with arguments of the
  /// same structure: otherwise MismatchError on all of them. If a rank fails instead, the others get PeerError.
  template <class Fn, class... T>
  requires MergeFunctionFor<Fn, T...>
  auto merge_call(Fn&& fn, Args<T...> arguments = {}, Here here = Here::current())
      -> local_t<detail::result_t<Fn, Strategy&, merged_t<T>...>> {
    using Merged = detail::result_t<Fn, Strategy&, merged_t<T>...>;
    const std::string operands = detail::signature_of_operands(arguments.values);
    const auto call = [&](Strategy& strategy) -> Merged {
      return std::apply(
          [&](T&... each) -> Merged {
            return std::invoke(std::forward<Fn>(fn), strategy, Locality<T>::to_merged(std::move(each))...);
          },
          arguments.values);
    };
    if constexpr (std::is_void_v<local_t<Merged>>) {
      merge(operands, here, [&](Strategy& strategy) { call(strategy); });
    } else {
      std::optional<std::remove_cvref_t<Merged>> result;
      merge(operands, here, [&](Strategy& strategy) { result.emplace(call(strategy)); });
      return Locality<std::remove_cvref_t<Merged>>::to_local(*std::move(result));
    }
  }

  /// COLL, blocking: one merge_call that reduces every leaf of `nest` over the replicas. The same structure and shapes
  /// on every rank, else MismatchError. InvalidArgument for the mean of integers. Its backward pass is
  /// all_reduce_gradient.
  template <Reducible Nest>
  Nest all_reduce(ReduceOp op, const Nest& nest, Here here = Here::current()) {
    return all_reduce_called("all_reduce", op, nest, here);
  }

  /// COLL, blocking. The backward pass of `all_reduce(op, nest)`: from `upstream`, the gradient of this rank's loss
  /// with respect to the result, the gradient of the sum of all ranks' losses with respect to this rank's `nest`. What
  /// a rank brings is in every rank's result, so that is the all_reduce of the upstreams by the same operation. The
  /// ranks compare that each of them goes backward here.
  template <Reducible Nest>
  Nest all_reduce_gradient(ReduceOp op, const Nest& upstream, Here here = Here::current()) {
    return all_reduce_called("gradient of all_reduce", op, upstream, here);
  }

  /// What Strategy::attest does, at the end of this run and inside of the agreement that ends it: no message more where
  /// all is well. LOCAL and at once, at any place in replica code; every rank asks for it in the same runs with the
  /// same variables, else MismatchError at the end. Asked for twice, the latter counts. What is wrong with `alike`
  /// fails the run at its end. ContextError outside of every run.
  void attest_at_end(std::vector<SyncOnReadVariable> alike = {});

  /// COLL, blocking. A merge_call for library code that knows beforehand what it will reduce, so that one agreement
  /// covers both: `batch` says what (the ranks compare it), and `fn` carries out just that on `CrossDeviceOps`, before
  /// anything that may throw. Runs in cross-replica context.
  void declared_merge(std::string_view batch, const std::function<void(CrossDeviceOps&)>& fn,
                      Here here = Here::current());

 private:
  friend class Strategy;
  friend struct detail::Defaults;
  explicit ReplicaContext(const StrategyExtended& extended) : extended_{extended} {}

  void merge(std::string_view operands, const Here& here, const std::function<void(Strategy&)>& fn);
  void all_reduce_leaves(std::string_view method, ReduceOp op, std::vector<detail::Leaf>& leaves,
                         std::string_view structure, const Here& here);

  /// `method` is how the tag calls it.
  template <Reducible Nest>
  Nest all_reduce_called(std::string_view method, ReduceOp op, const Nest& nest, const Here& here) {
    std::vector<detail::Leaf> leaves = detail::leaves_of(nest);
    all_reduce_leaves(method, op, leaves, detail::structure_of(nest), here);
    return detail::with_leaves(nest, leaves);
  }

  const StrategyExtended& extended_;                                ///< stays where it is when the strategy is moved
  std::optional<std::vector<SyncOnReadVariable>> attested_at_end_;  ///< what `attest_at_end` was given
};

}  // namespace lockstep
