// Reductions among ranks: which values are combined, in which order, and who gets the result.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// InvalidArgument if `op` is not defined for `dtype`: the mean of integers is no integer. LOCAL, before any
/// communication.
void require_reducible(ReduceOp op, DType dtype);

/// Every method is COLL and blocks until the result is there; each rank brings tensors of the same number, shapes and
/// types in the same order, which the caller has agreed on. Tensors of one type travel as one message: those that lie
/// next to each other in memory as they are, others by way of a packed copy.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// "fixed-order sum".
  virtual std::string_view name() const = 0;

  /// In place, on every rank.
  virtual void all_reduce(ReduceOp op, std::span<const TensorView> tensors) = 0;

  /// In place on `root`; elsewhere the tensors' contents are unspecified afterwards.
  virtual void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) = 0;

  /// `root`'s tensors overwrite everyone's.
  virtual void broadcast(std::span<const TensorView> tensors, int root) = 0;
};

/// Sums in one fixed binary tree over the ranks (fixed_order.hpp), so the bits of the result depend on the values
/// alone. Each rank sums its slice and hands it back: 2 (n-1)/n of the bytes travel, as in a ring. `communicator` must
/// outlive the result.
std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator);

}  // namespace lockstep
