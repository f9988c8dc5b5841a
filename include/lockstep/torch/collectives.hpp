// Collectives on tensors of LibTorch, in replica context.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/ScalarType.h>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/values/leaves.hpp>
#include <lockstep/core/values/nest.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

namespace lockstep {
namespace libtorch::detail {

template <class T>
inline constexpr bool is_tensor_nest =
    lockstep::detail::is_nest<T>([]<class Leaf>() { return std::same_as<Leaf, at::Tensor>; });
template <class T>
inline constexpr bool is_reducible_nest = lockstep::detail::is_nest<T>(
    []<class Leaf>() { return std::same_as<Leaf, at::Tensor> || lockstep::detail::ReducibleNumber<Leaf>; });

/// The leaves of a nest, a number as a tensor on the host, and how they are arranged.
struct TensorList {
  std::vector<at::Tensor> tensors;
  std::string structure;  ///< " in {a: tensor b: tensor }"; empty for a tensor alone
};

/// The same as lockstep's tensors.
struct SharedList {
  std::vector<Tensor> tensors;
  std::string structure;
};

template <class T>
TensorList list_of(const T& nest) {
  TensorList list;
  lockstep::detail::for_each_leaf(nest, [&]<class Leaf>(const Leaf& leaf) {
    if constexpr (std::same_as<Leaf, at::Tensor>) {
      list.tensors.push_back(leaf);
    } else {
      using Carrier = lockstep::detail::carrier_t<Leaf>;
      list.tensors.push_back(at::scalar_tensor(static_cast<Carrier>(leaf), c10::CppTypeToScalarType<Carrier>::value));
    }
  });
  if constexpr (!std::same_as<T, at::Tensor>) list.structure = lockstep::detail::structure_of(nest);
  return list;
}

template <class T>
T with_tensors(const T& like, const std::vector<at::Tensor>& tensors) {
  T made = like;
  std::size_t next = 0;
  lockstep::detail::for_each_leaf(made, [&]<class Leaf>(Leaf& leaf) {
    const at::Tensor& tensor = tensors[next++];
    if constexpr (std::same_as<Leaf, at::Tensor>) {
      leaf = tensor;
    } else {
      leaf = static_cast<Leaf>(*tensor.template data_ptr<lockstep::detail::carrier_t<Leaf>>());
    }
  });
  return made;
}

LOCKSTEP_API std::vector<at::Tensor> all_reduce(ReplicaContext& context, ReduceOp op, const TensorList& list,
                                                const Here& here);
LOCKSTEP_API std::vector<at::Tensor> all_gather(ReplicaContext& context, const TensorList& list, const Here& here);
LOCKSTEP_API std::vector<at::Tensor> broadcast(ReplicaContext& context, const TensorList& list, const Here& here);

/// The operands and the results of a reduction by the context's own all_reduce_async.
LOCKSTEP_API SharedList shared_for_start(ReplicaContext& context, ReduceOp op, const TensorList& list,
                                         const Here& here);
LOCKSTEP_API std::vector<at::Tensor> received(ReplicaContext& context, const SharedList& sums);

}  // namespace libtorch::detail

template <>
struct Nest<libtorch::detail::SharedList> {
  static constexpr auto members = std::tuple{&libtorch::detail::SharedList::tensors};
};

namespace detail {

template <>
struct LeafText<at::Tensor> {
  static std::string of(const at::Tensor&) { return "tensor"; }
};

template <>
inline std::string structure_of(const libtorch::detail::SharedList& list) {
  return list.structure;
}

}  // namespace detail

namespace libtorch {

namespace detail {

/// What can be gathered or broadcast. Compilers show the line with the next comment if a type is refused.
template <class T>
concept TensorNest = is_tensor_nest<T>;  // torch::Tensor; nests; structs with a Nest<T>

/// What can be reduced: numbers too, as in Reducible.
template <class T>
concept ReducibleTensorNest = is_reducible_nest<T>;  // torch::Tensor, numbers; nests; structs

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
  return detail::with_tensors(nest, detail::all_reduce(context, op, detail::list_of(nest), here));
}

/// COLL, blocking, one agreement. Every rank gets all replicas' rows in rank order. Their numbers may differ.
/// InvalidArgument for a tensor without dimensions.
template <detail::TensorNest T>
T all_gather(ReplicaContext& context, const T& nest, Here here = Here::current()) {
  return detail::with_tensors(nest, detail::all_gather(context, detail::list_of(nest), here));
}

/// COLL, blocking, one agreement. Every rank gets replica 0's values; the others' tensors give shapes and types.
template <detail::TensorNest T>
T broadcast(ReplicaContext& context, const T& nest, Here here = Here::current()) {
  return detail::with_tensors(nest, detail::broadcast(context, detail::list_of(nest), here));
}

namespace detail {

/// What `all_reduce_async` returns. As PendingReduction.
template <ReducibleTensorNest T>
class [[nodiscard("nothing can wait for this reduction: keep what all_reduce_async returns")]] PendingTensors {
 public:
  PendingTensors(ReplicaContext& context, ReduceOp op, const T& nest, const Here& here)
      : context_{&context},
        like_{nest},
        pending_{context.all_reduce_async(op, shared_for_start(context, op, list_of(nest), here), here)} {}

  /// Blocks as `all_reduce` does, and returns what that would have returned. Call it once, in the run that started it.
  T wait(Here here = Here::current()) {
    const SharedList sums = pending_.wait(here);
    return with_tensors(like_, received(*context_, sums));
  }

 private:
  ReplicaContext* context_;
  T like_;
  ReplicaContext::PendingReduction<SharedList> pending_;
};

}  // namespace detail

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
