// Collectives on tensors of LibTorch, in replica context.
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

namespace lockstep {
namespace detail {
template <>
struct LeafText<at::Tensor> {
  static std::string of(const at::Tensor&) { return "tensor"; }
};
}  // namespace detail

namespace libtorch {

namespace detail {

using lockstep::detail::AnyValue;

template <class T>
inline constexpr bool is_tensor_nest =
    lockstep::detail::is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, at::Tensor>; });
template <class T>
inline constexpr bool is_reducible_nest = lockstep::detail::is_nest<T>(
    []<class Leaf>() { return std::same_as<Leaf, at::Tensor> || lockstep::detail::ReducibleNumber<Leaf>; });

/// What can be gathered or broadcast. Compilers show the line with the next comment if a type is refused.
template <class T>
concept TensorNest = is_tensor_nest<T>;  // torch::Tensor; nests; structs with a Nest<T>

/// What can be reduced: numbers too, as in Reducible.
template <class T>
concept ReducibleTensorNest = is_reducible_nest<T>;  // torch::Tensor, numbers; nests; structs

// Each replaces the tensors and numbers of `nest` by the results.
LOCKSTEP_API void all_reduce(ReplicaContext& context, ReduceOp op, AnyValue nest, const Here& here);
LOCKSTEP_API void all_gather(ReplicaContext& context, AnyValue nest, const Here& here);
LOCKSTEP_API void broadcast(ReplicaContext& context, AnyValue nest, const Here& here);

class StartedTensors;
LOCKSTEP_API std::shared_ptr<StartedTensors> start(ReplicaContext& context, ReduceOp op, AnyValue nest,
                                                   const Here& here);
LOCKSTEP_API void wait_for(const std::shared_ptr<StartedTensors>& started, AnyValue nest, const Here& here);

/// What `all_reduce_async` returns. As PendingReduction.
template <ReducibleTensorNest T>
class [[nodiscard("nothing can wait for this reduction: keep what all_reduce_async returns")]] PendingTensors {
 public:
  PendingTensors(ReplicaContext& context, ReduceOp op, const T& nest, const Here& here)
      : result_{nest}, started_{detail::start(context, op, result_, here)} {}

  /// Blocks as `all_reduce` does, and returns what that would have returned. Call it once, in the run that started it.
  T wait(Here here = Here::current()) {
    detail::wait_for(started_, result_, here);
    return std::move(result_);
  }

 private:
  T result_;  ///< until `wait`, the operand
  std::shared_ptr<StartedTensors> started_;
};

}  // namespace detail

// As the methods of ReplicaContext with these names: ranks whose nests differ in structure, shapes or types all throw
// MismatchError. An exception on one rank, such as one of those below, is a PeerError on the others.
//
// Tensors are on the CPU or on the strategy's device, where the results are, too. They are read where they are if they
// are contiguous, and copied once if they are not. Results are new tensors, contiguous and without a graph, whose
// memory is computed in place; only on GPUs, where torch orders its own memory alone, all_gather and all_reduce_async
// copy once more. On a GPU they start after the work that torch has enqueued, and its later work sees the results.
//
// InvalidArgument, before any communication, for a tensor that is undefined, sparse, on another device, or of a type
// other than f32, f64, f16, bf16, i32, i64, u8 and (not to be reduced) bool. Nothing here is differentiable: a tensor
// that has come out of a graph is an InvalidArgument, since its gradient would be lost; pass `x.detach()`. A parameter
// is taken without its gradient, and so is everything under a NoGradGuard.

/// COLL, blocking, one agreement. Every rank gets the sum, or the mean, over the replicas.
template <detail::ReducibleTensorNest T>
T all_reduce(ReplicaContext& context, ReduceOp op, const T& nest, Here here = Here::current()) {
  T result = nest;
  detail::all_reduce(context, op, result, here);
  return result;
}

/// COLL, blocking, one agreement. Every rank gets all replicas' rows in rank order. Their numbers may differ.
/// InvalidArgument for a tensor without dimensions.
template <detail::TensorNest T>
T all_gather(ReplicaContext& context, const T& nest, Here here = Here::current()) {
  T result = nest;
  detail::all_gather(context, result, here);
  return result;
}

/// COLL, blocking, one agreement. Every rank gets replica 0's values; the others' tensors give shapes and types.
template <detail::TensorNest T>
T broadcast(ReplicaContext& context, const T& nest, Here here = Here::current()) {
  T result = nest;
  detail::broadcast(context, result, here);
  return result;
}

/// COLL. all_reduce without the wait: `wait()` of the result blocks as `all_reduce` does, and returns what that would
/// have returned. The tensors may be changed as soon as this returns. Reductions proceed as
/// ReplicaContext::all_reduce_async says: one is open at a time, and what nobody waits for is a ContextError.
template <detail::ReducibleTensorNest T>
detail::PendingTensors<T> all_reduce_async(ReplicaContext& context, ReduceOp op, const T& nest,
                                           Here here = Here::current()) {
  return {context, op, nest, here};
}

}  // namespace libtorch
}  // namespace lockstep
