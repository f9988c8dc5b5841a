// The implementations of reductions. The communicator of each must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "reduce/cross_device_ops.hpp"

namespace lockstep {

/// When long host tensors travel between ranks: when the result is waited for, or as early as they can.
enum class Travel : std::uint8_t { at_wait, early };

/// Sums in one fixed binary tree over the ranks (fixed_order.hpp), so the bits of the result depend on the values
/// alone. Each rank sums one slice and sends it back: 2 (n-1)/n of the bytes travel, as in a ring. Tensors of a few
/// kilobytes travel whole instead; with the default packing, those of all types go in one message. Ranks of one node
/// that share memory read and write each other's tensors there instead of sending them, in memory of `allocate_shared`
/// without a copy.
///
/// 16-bit floats travel as they are. They are summed in f32, divided for a mean, and rounded once at the end, to
/// nearest even. So their bits do not depend on the number of ranks that contribute either, but a rank that first sums
/// several parts should do so in f32.
///
/// With Travel::early, for ranks of several nodes, long host tensors travel in small pieces, which are sent on as soon
/// as they are added up, also while the ranks compute (SumsUnderWay). At most one of a communicator's reductions may do
/// so, as each decides on an order of pieces.
std::unique_ptr<CrossDeviceOps> make_fixed_order_ops(Communicator& communicator, Packing packing = {},
                                                     Travel travel = Travel::at_wait);

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
std::unique_ptr<CrossDeviceOps> make_to_one_rank_ops(Communicator& communicator,
                                                     ReductionOptions::Accumulate accumulate = {},
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

/// Whether a sum within nodes and then over them has the bits of the one tree over all ranks, whatever the values. It
/// does if every node holds the same power-of-two number of neighbouring ranks.
bool hierarchy_keeps_bits(std::span<const int> node_of_rank);

}  // namespace lockstep
