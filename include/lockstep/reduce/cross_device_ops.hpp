// Reductions among ranks: which values are combined, in which order, and who gets the result.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/reduce/reduction_options.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

/// InvalidArgument if `op` is none of the enumeration, or not defined for `dtype`: the mean of integers is no integer.
/// Sums of integers wrap around. LOCAL, before any communication.
void require_reducible(ReduceOp op, DType dtype);

/// InvalidArgument unless the parts of `slices` fit each other, the indices are rows of the dense shape (looked at
/// where they are on the host), and `op` is defined for the values. LOCAL.
void require_reducible(ReduceOp op, const IndexedSlices& slices);

/// Every method is COLL; each rank brings tensors of the same number, shapes, types and kinds of device in the same
/// order, which the caller has agreed on. For tensors of the host it blocks until the result is there; for those of a
/// GPU, work enqueued on the communicator's stream afterwards finds it. Tensors of one type travel as one message, or
/// as the packing has it: those that lie next to each other in memory as they are, others by way of a packed copy.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// "fixed-order sum", "sum in the backend's order", "hierarchical sum", "reduction to one rank", "reduction
  /// to one rank by a function".
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

// The kinds. `communicator` must outlive what is made.

/// Sums in one fixed binary tree over the ranks (fixed_order.hpp), so the bits of the result depend on the values
/// alone. Each rank sums its slice and hands it back: 2 (n-1)/n of the bytes travel, as in a ring. Tensors of a few
/// kilobytes travel whole instead; with the default packing, all types in one message.
///
/// 16-bit floats travel as they are, are added up in f32, divided for a mean, and rounded once, to nearest even, at the
/// end. So their bits too do not depend on the number of ranks that bring the values; but a rank that adds up several
/// parts first should do so in f32.
std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator, Packing packing = {});

/// Sums as Communicator::all_reduce does: as fast as the backend can, in an order of its own. 16-bit floats of the
/// host, which no backend there adds up, go in the fixed order.
std::unique_ptr<CrossDeviceOps> make_backend_order_ops(Communicator& communicator, Packing packing = {});

/// COLL, for the host's tensors: sums within each node, in its fixed tree, then among the nodes' first ranks in theirs,
/// and back, so that what crosses the network does so once a node. The bits are those of the one tree over all ranks
/// where `hierarchy_keeps_bits`, and else of this tree of its own. 16-bit floats are rounded once, at the end. Slices
/// go as in the fixed order. `node_of_rank` has the same number for ranks of one node, and is the same on every rank.
/// InvalidArgument unless it has as many numbers as there are ranks, and where the communicator cannot be split.
std::unique_ptr<CrossDeviceOps> make_hierarchical_ops(Communicator& communicator, std::span<const int> node_of_rank,
                                                      Packing packing = {});

/// Everything to one rank, which combines it: by `accumulate`, or, where that is empty, by the sum in the fixed order.
/// For a mean the result is divided by the number of ranks. An all-reduce does so on rank 0 and broadcasts. Slices are
/// gathered, whatever the function.
std::unique_ptr<CrossDeviceOps> make_to_one_rank_ops(Communicator& communicator, Accumulate accumulate = {},
                                                     Packing packing = {});

/// COLL: what `options` ask for, for tensors where `communicator` has them. InvalidArgument as `require_valid`.
std::unique_ptr<CrossDeviceOps> make_cross_device_ops(Communicator& communicator, const ReductionOptions& options,
                                                      std::span<const int> node_of_rank);

/// Tensors of the host by `host`, those of the process's GPU by `device`.
std::unique_ptr<CrossDeviceOps> make_ops_by_device(std::unique_ptr<CrossDeviceOps> host,
                                                   std::unique_ptr<CrossDeviceOps> device);

}  // namespace lockstep
