// Which reductions a strategy uses, and how it packs tensors into messages.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

enum class ReduceOp : std::uint8_t {
  sum,
  mean,
  exact_sum,  ///< each element is the exact sum, rounded once: of f32 and f64, in the sums of a Group
};

/// "sum", "mean" or "exact sum".
LOCKSTEP_API std::string_view name_of(ReduceOp op);

namespace detail {

/// How tensors become messages: ReductionOptions::into_packs, group_small and unpacked.
struct IntoPacks {
  int num_packs = 1;
};
struct GroupSmall {  ///< ReductionOptions::group_small
  std::int64_t small_tensor_bytes;
  int max_group;
};
struct Unpacked {};  ///< ReductionOptions::unpacked

}  // namespace detail

/// How a strategy reduces. Must be the same on every rank. Making a strategy throws InvalidArgument for an unknown
/// kind, packing sizes below 1, sizes of `smaller` that are below 1 or do not rise, `accumulate` without to_one_rank or
/// with shard_optimizer, and a compression to another type or without hierarchical reductions.
struct ReductionOptions {
  /// How values are combined over the ranks.
  enum class Kind : std::uint8_t {
    automatic,      ///< the fixed order's bits on the host, the backend's order on GPUs
    fixed_order,    ///< the bits of one tree over the ranks: they do not depend on how many ranks share the work
    backend_order,  ///< the communicator's best way; the bits may depend on the number of ranks
    hierarchical,   ///< within each node, then between nodes. On GPUs NCCL's own, as backend_order
    to_one_rank,    ///< everything to one rank, which combines it, and back
  };

  /// Group::SumOptions.
  struct OfRequest {
    /// f16 or bf16, for values of f32, which cross the network in half the bytes: every rank's are rounded to that
    /// type, added up in f32, and rounded again. A rank alone keeps its values.
    std::optional<DType> wire = {};
    ReduceOp op = ReduceOp::sum;  ///< or exact_sum, without a wire type
    /// Each rank brings the sum of its share of so many shards (Range::of_rank, FixedOrderAccumulator), and the result
    /// has the same bits on any number of ranks. 0: each brings a part of its own. InvalidArgument for fewer shards
    /// than ranks, and for an exact sum.
    int shards = 0;
  };

  /// How tensors become messages. Sums in the fixed order have the same bits with each. The default is into_packs(1).
  using Packing = std::variant<detail::IntoPacks, detail::GroupSmall, detail::Unpacked>;

  /// All tensors of a type are concatenated and cut into messages of equal length; the last takes the remainder.
  static Packing into_packs(int num_packs) { return detail::IntoPacks{num_packs}; }

  /// Neighbouring tensors of a type, each of at most `small_tensor_bytes`, share a message, at most `max_group` in
  /// each. Every other tensor is a message of its own.
  static Packing group_small(std::int64_t small_tensor_bytes, int max_group) {
    return detail::GroupSmall{small_tensor_bytes, max_group};
  }

  /// Every tensor is a message of its own.
  static Packing unpacked() { return detail::Unpacked{}; }

  /// Combines the ranks' parts, which come in rank order, into `result`. It must work element by element, since large
  /// tensors come in pieces. All views are flat, of one count and type, and in memory of the stream's device; `result`
  /// overlaps none of the parts. Work on a GPU must be enqueued on `stream`. An exception ends the job. All dense
  /// values that a strategy reduces come here: the gradients of an optimizer's step and, on the host, its numbers of
  /// samples (i64) and losses (f64).
  using Accumulate = std::function<void(std::span<const TensorView> parts, const TensorView& result, Stream& stream)>;

  /// Called instead of each collective of the reductions, on the thread that asked for it. It must call `collective`
  /// once, and may measure it. An exception ends the job.
  using AroundCollective = std::function<void(const std::function<void()>& collective)>;

  /// How tensors up to a size are reduced.
  struct ForSmall {
    std::int64_t up_to_bytes = 0;
    Kind kind = Kind::automatic;
    Packing packing = {};
  };

  Kind kind = Kind::automatic;
  Packing packing = {};
  /// Overrides `kind` and `packing` for small tensors. Sorted by size: each tensor is reduced by the first entry whose
  /// limit it does not exceed. The gradients that an optimizer sends as one message count as one tensor. IndexedSlices,
  /// whose number of rows may differ between ranks, and broadcasts are not chosen by size.
  std::vector<ForSmall> smaller = {};
  /// For to_one_rank only. If empty, the sum in the fixed order.
  Accumulate accumulate = {};
  /// f16 or bf16: f32 gradients cross the network as this type, in half the bytes. The sum of each node is rounded once
  /// before it travels, and the sum over the nodes once, to nearest even; within a node nothing is. Everything else is
  /// sent uncompressed, also rows of IndexedSlices. If gradients are ready before their step, and those of several
  /// separate ranges of memory take up to 64 KiB each, these ranges travel together, uncompressed. With it `automatic`
  /// stands for hierarchical; the bits depend on which ranks share a node. A sum over samples above 65504 is infinite
  /// in f16. For gradients on the host (ConfigError on GPUs).
  std::optional<DType> gradient_compression = {};
  /// Each rank updates a part of the variables, and keeps the state of optimizers for this part alone: for P ranks,
  /// 1/P of it. Between nodes of unequal size, hierarchical reductions give a part only to as many ranks of each node
  /// as the smallest node has. An optimizer's step then sums the gradients in slices, updates this rank's slice and
  /// sends the new values to all, in place of the gradients' sums. The bits are the same as without it. Fixed-order and
  /// hierarchical reductions send as many bytes as without it, except that with gradient_compression the values return
  /// in full; others send half as much again. For optimizers that update element by element
  /// (Optimizer::updates_by_element). Variables that are sealed together and take no more than 64 KiB stay whole, and
  /// so do those that one rank alone updates.
  bool shard_optimizer = false;
  /// If empty, collectives are called directly.
  AroundCollective around = {};
};

/// "automatic", "fixed-order", "backend-order", "hierarchical", "to-one-rank".
LOCKSTEP_API std::string_view name_of(ReductionOptions::Kind kind);

}  // namespace lockstep
