// Reductions among ranks: which values are combined, in which order, and who gets the result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

/// InvalidArgument if `op` is none of the enumeration, or not defined for `dtype`: the mean of integers is no integer.
/// LOCAL, before any
/// communication.
void require_reducible(ReduceOp op, DType dtype);

/// InvalidArgument unless the parts of `slices` fit each other, the indices are rows of the dense shape (looked at
/// where they are on the host), and `op` is defined for the values. LOCAL.
void require_reducible(ReduceOp op, const IndexedSlices& slices);

/// How floating-point sums over ranks are bracketed.
enum class SumOrder : std::uint8_t {
  fixed,    ///< one tree over the ranks: bits that do not depend on how many share the work
  backend,  ///< as the communicator does it best
};

/// Every method is COLL; each rank brings tensors of the same number, shapes, types and kinds of device in the same
/// order, which the caller has agreed on. For tensors of the host it blocks until the result is there; for those of a
/// GPU, work enqueued on the communicator's stream afterwards finds it. Tensors of one type travel as one message:
/// those that lie next to each other in memory as they are, others by way of a packed copy.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// "fixed-order sum", "sum in the backend's order".
  virtual std::string_view name() const = 0;

  /// In place, on every rank.
  virtual void all_reduce(ReduceOp op, std::span<const TensorView> tensors) = 0;

  /// In place on `root`; elsewhere the tensors' contents are unspecified afterwards.
  virtual void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) = 0;

  /// `root`'s tensors overwrite everyone's.
  virtual void broadcast(std::span<const TensorView> tensors, int root) = 0;

  // The same for slices, of which each rank may have another number of rows. A sum is all ranks' rows in rank order,
  // with duplicates kept; a mean has their values divided by the number of ranks. Each of `slices` is replaced by the
  // result; where there is none, it holds anything afterwards. Blocks the host while the numbers of rows are exchanged.
  virtual void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) = 0;
  virtual void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) = 0;
  virtual void broadcast(std::span<IndexedSlices> slices, int root) = 0;
};

/// Sums in one fixed binary tree over the ranks (fixed_order.hpp), so the bits of the result depend on the values
/// alone. Each rank sums its slice and hands it back: 2 (n-1)/n of the bytes travel, as in a ring. Tensors of a few
/// kilobytes travel whole instead, all types in one message. `communicator` must outlive the result.
std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator);

/// Sums as Communicator::all_reduce does: as fast as the backend can, in an order of its own. `communicator` must
/// outlive the result.
std::unique_ptr<CrossDeviceOps> make_backend_order_ops(Communicator& communicator);

/// Tensors of the host by `host`, those of the process's GPU by `device`.
std::unique_ptr<CrossDeviceOps> make_ops_by_device(std::unique_ptr<CrossDeviceOps> host,
                                                   std::unique_ptr<CrossDeviceOps> device);

}  // namespace lockstep
