// Reductions over ranks: which values are combined, in which order, and who gets the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/reduce/reduction_options.hpp>
#include <lockstep/tensor/tensor.hpp>
#include <lockstep/values/values.hpp>

#include "base/parts.hpp"
#include "comm/communicator.hpp"

namespace lockstep {

using Packing = ReductionOptions::Packing;
struct Sliced;

/// LOCAL, before any communication. InvalidArgument if `op` is not a ReduceOp or is not defined for `dtype`: the mean
/// of integers is not an integer. Sums of integers wrap around.
LOCKSTEP_PARTS_API void require_reducible(ReduceOp op, DType dtype);

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

  /// How many bytes of neighbouring gradients are enough for a message (plan_buckets): few where messages travel while
  /// more gradients are computed.
  virtual std::int64_t enough_bytes() const;

  /// What gradients are rounded to between nodes. Empty if they are not, as where all ranks are on one node.
  virtual std::optional<DType> gradient_compression() const { return std::nullopt; }

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

  // A sum in two halves, between which each rank works on its own slices of a message (slice_map.hpp).

  /// LOCAL. The ranks of the slices that a piece of a message is cut into, in order: how these reductions divide it.
  virtual std::vector<int> slice_owners() const = 0;

  /// As `start`, but the sum arrives only in this rank's slices of `message.memory`, with the bits that `start` gives.
  /// The rest of the memory is unspecified afterwards, and other ranks may read all of it until the next fence: another
  /// reduction or `gather_slices`.
  virtual Work start_scatter(const Sliced& message) = 0;

  /// The owners' slices overwrite everyone's. `through` is unspecified afterwards.
  virtual void gather_slices(std::span<const Sliced> messages) = 0;

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

}  // namespace lockstep
