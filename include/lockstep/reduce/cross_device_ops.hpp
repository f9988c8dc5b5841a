// Reductions over ranks: which values are combined, in which order, and who gets the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/comm/communicator.hpp>
#include <lockstep/reduce/reduction_options.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/values.hpp>

namespace lockstep {

/// LOCAL, before any communication. InvalidArgument if `op` is not a ReduceOp or is not defined for `dtype`: the mean
/// of integers is not an integer. Sums of integers wrap around.
void require_reducible(ReduceOp op, DType dtype);

/// LOCAL. InvalidArgument unless the parts of `slices` fit together, the indices are rows of the dense shape (checked
/// only on the host), and `op` is defined for the values.
void require_reducible(ReduceOp op, const IndexedSlices& slices);

/// Every method is COLL. Each rank passes tensors of the same number, shapes, types and kinds of device, in the same
/// order; the caller has agreed on them. For host tensors a method blocks until the result is there; for GPU tensors,
/// work enqueued on the communicator's stream afterwards sees the result. Tensors of one type travel as one message, or
/// as the packing says. Tensors that are adjacent in memory are sent in place, others through a packed copy.
class CrossDeviceOps {
 public:
  virtual ~CrossDeviceOps() = default;

  /// "fixed-order sum", "sum in the backend's order", "hierarchical sum", "reduction to one rank", "reduction to one
  /// rank by a function".
  virtual std::string_view name() const = 0;

  /// How tensors become messages, the large ones where sizes differ.
  virtual const Packing& packing() const = 0;

  /// Host memory in which the ranks of a node reduce in place: tensors at the same place of it on every rank are summed
  /// where they are. Zeroed, and it may outlive this object. Empty where these reductions have no such memory.
  virtual SharedAllocation allocate_shared(std::size_t) { return {}; }

  /// In place, on every rank.
  virtual void all_reduce(ReduceOp op, std::span<const TensorView> tensors) = 0;

  /// Starts the sum of `message` over all ranks, in place and as one message whatever the packing. Returns at once: a
  /// GPU's backend works while the caller continues; the host's sums are made when they are waited for. `message` stays
  /// untouched until then. Wait for all of them, in the order in which they were started, before any other reduction.
  virtual Work start(const TensorView& message) = 0;

  /// The same for `all_reduce(op, tensors)`, with its messages and its bits. The memory of `tensors` stays untouched
  /// until the wait; the span may end with the call.
  virtual Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) = 0;

  /// In place on `root`. On other ranks the tensors' contents are unspecified afterwards.
  virtual void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) = 0;

  /// `root`'s tensors overwrite everyone's.
  virtual void broadcast(std::span<const TensorView> tensors, int root) = 0;

  // The same for slices, whose number of rows may differ by rank. A sum is the concatenation of all ranks' rows in rank
  // order, with duplicates kept; a mean divides their values by the number of ranks. The result replaces each of
  // `slices`; on a rank that gets none, their contents are unspecified afterwards. Blocks the host while the
  // numbers of rows are exchanged.
  virtual void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) = 0;
  virtual void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) = 0;
  virtual void broadcast(std::span<IndexedSlices> slices, int root) = 0;

  /// Replaces each tensor by all ranks' rows of it, concatenated in rank order. The first extents may differ by rank
  /// and may be 0. Blocks the host while they are exchanged.
  virtual void all_gather(std::span<Tensor> tensors) = 0;
};

// The implementations. `communicator` must outlive the result.

/// Sums in one fixed binary tree over the ranks (fixed_order.hpp), so the bits of the result depend on the values
/// alone. Each rank sums one slice and sends it back: 2 (n-1)/n of the bytes travel, as in a ring. Tensors of a few
/// kilobytes travel whole instead; with the default packing, those of all types go in one message. Ranks of one node
/// that share memory read and write each other's tensors there instead of sending them, in memory of `allocate_shared`
/// without a copy.
///
/// 16-bit floats travel as they are. They are summed in f32, divided for a mean, and rounded once at the end, to
/// nearest even. So their bits do not depend on the number of ranks that contribute either, but a rank that first sums
/// several parts should do so in f32.
std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator, Packing packing = {});

/// Sums as Communicator::all_reduce does: as fast as the backend can, in its own order. 16-bit floats on the host,
/// which no host backend sums, are summed in the fixed order.
std::unique_ptr<CrossDeviceOps> make_backend_order_ops(Communicator& communicator, Packing packing = {});

/// COLL, for host tensors. Sums within each node in its fixed tree, then over the nodes in theirs, so that data crosses
/// the network once per node. Small tensors are carried by the nodes' first ranks; of others, each rank carries a
/// slice, as far as every node has as many ranks. If `hierarchy_keeps_bits`, the bits are those of the one tree over
/// all ranks, else those of this two-level tree. 16-bit floats are rounded once, at the end. Slices are handled as in
/// the fixed order. With a `compression`, f32 messages of `start` cross the network as f16 or bf16
/// (ReductionOptions::gradient_compression). `node_of_rank` holds the same number for ranks of one node and is the same
/// on every rank. InvalidArgument unless it has one number per rank, and if the communicator cannot be split.
std::unique_ptr<CrossDeviceOps> make_hierarchical_ops(Communicator& communicator, std::span<const int> node_of_rank,
                                                      Packing packing = {}, std::optional<DType> compression = {});

/// Sends everything to one rank, which combines it by `accumulate`, or, if that is empty, by the sum in the fixed
/// order. For a mean it divides the result by the number of ranks. An all-reduce combines on rank 0 and broadcasts.
/// Slices are gathered, whatever the function.
std::unique_ptr<CrossDeviceOps> make_to_one_rank_ops(Communicator& communicator, Accumulate accumulate = {},
                                                     Packing packing = {});

/// COLL. The reductions that `options` ask for, for tensors on the communicator's kind of device. InvalidArgument for
/// options that `require_valid` refuses; ConfigError for compressed gradients on GPUs.
std::unique_ptr<CrossDeviceOps> make_cross_device_ops(Communicator& communicator, const ReductionOptions& options,
                                                      std::span<const int> node_of_rank);

/// Reductions for tensors up to a size.
struct SizedOps {
  std::int64_t up_to_bytes = 0;
  std::unique_ptr<CrossDeviceOps> ops;
};

/// Reduces each tensor by the first entry of `smaller`, sorted by size, whose limit it does not exceed, and everything
/// else by `rest`.
std::unique_ptr<CrossDeviceOps> make_ops_by_size(std::vector<SizedOps> smaller, std::unique_ptr<CrossDeviceOps> rest);

/// Reduces host tensors by `host` and tensors on the process's GPU by `device`.
std::unique_ptr<CrossDeviceOps> make_ops_by_device(std::unique_ptr<CrossDeviceOps> host,
                                                   std::unique_ptr<CrossDeviceOps> device);

}  // namespace lockstep
