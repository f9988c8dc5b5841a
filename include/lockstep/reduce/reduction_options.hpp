// Which reductions a strategy uses, and how it packs tensors into messages: what the user may choose, and the choice
// where the user has none.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// How values are combined over the ranks.
enum class ReductionKind : std::uint8_t {
  automatic,      ///< by `choose_reduction`: on the host one that keeps the fixed order, on GPUs the backend's order
  fixed_order,    ///< one tree over the ranks: bits that do not depend on how many share the work
  backend_order,  ///< as the communicator does it best; the bits may depend on the number of ranks
  hierarchical,   ///< within each node, among the nodes' first ranks, and back. On GPUs NCCL's own, as backend_order
  to_one_rank,    ///< everything to one rank, which combines it, and back
};

/// "automatic", "fixed-order", "backend-order", "hierarchical", "to-one-rank".
std::string_view name_of(ReductionKind kind);

/// All tensors of a type one behind the other, cut into messages of equal length; the last takes what is left over.
struct IntoPacks {
  int num_packs = 1;
};

/// Neighbouring tensors of a type, each of up to so many bytes, as one message; up to `max_group` of them. Every other
/// tensor is a message of its own.
struct GroupSmall {
  std::int64_t small_tensor_bytes;
  int max_group;
};

/// Every tensor is a message of its own.
struct Unpacked {};

/// How tensors become messages. Sums in the fixed order have the same bits under each.
using Packing = std::variant<IntoPacks, GroupSmall, Unpacked>;

/// Combines what the ranks brought, in rank order, into `result`: element by element, since large tensors come in
/// pieces. All are flat, of one count and type, and in memory of the stream's device; `result` overlaps none of them.
/// Work on a GPU is to be enqueued there. An exception out of it ends the job. All that a strategy reduces comes here:
/// of an optimizer's step the gradients, and on the host the numbers of samples (i64) and the losses (f64).
using Accumulate = std::function<void(std::span<const TensorView> parts, const TensorView& result, Stream& stream)>;

/// Called in the place of each collective of the reductions, on the thread that asked for it: calls `collective`, once,
/// and may look at what that takes. An exception out of it ends the job.
using AroundCollective = std::function<void(const std::function<void()>& collective)>;

/// The same on every rank.
struct ReductionOptions {
  ReductionKind kind = ReductionKind::automatic;
  Packing packing = {};
  /// For to_one_rank alone. Empty: the sum in the fixed order.
  Accumulate accumulate = {};
  /// Empty: nothing stands around them.
  AroundCollective around = {};
};

/// InvalidArgument for options that make no sense. LOCAL.
void require_valid(const ReductionOptions& options);

/// "hierarchical reductions in 4 packs": all that ranks can compare.
std::string describe(const ReductionOptions& options);

/// What `automatic` stands for, from what all ranks know: where the tensors are, and which node each rank is on. Never
/// `automatic`. Pure, so every rank comes to the same answer.
///
/// On the host it is hierarchical where there are several nodes with several ranks each and that changes no bit
/// (`hierarchy_keeps_bits`), since then a sum crosses the network once a node, not once a rank; else fixed_order.
ReductionKind choose_reduction(DeviceKind tensors, std::span<const int> node_of_rank);

/// Whether the sum within nodes and then over them has the bits of the one tree over all ranks, whatever the values:
/// each node holds the same power of two of neighbouring ranks.
bool hierarchy_keeps_bits(std::span<const int> node_of_rank);

}  // namespace lockstep
