// Gradients of which only some rows are not zero, such as those of embeddings: how they add up, and how they travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/core/values/values.hpp>

#include "core/base/parts.hpp"
#include "sync/step/synchronous_step.hpp"

namespace lockstep {

/// LOCAL. The sum of `parts`, at least one, on the host, of f32 or f64: each row once, ascending. Rows of one index are
/// added up in the order of the parts and, within a part, in its own; parts without the row add no zero.
LOCKSTEP_PARTS_API IndexedSlices sum_rows(std::span<const IndexedSlices> parts);

/// The same sum in the tree of fixed_order.hpp.
class LOCKSTEP_PARTS_API RowTree {
 public:
  /// The next of the parts, or the sum of so many, which are a whole subtree.
  void push(IndexedSlices part, std::int64_t parts = 1);

  /// Of all parts pushed since the last call. There is at least one.
  IndexedSlices finish();

 private:
  void join_last_two();

  struct Partial {
    IndexedSlices sum;
    std::int64_t parts;
  };
  std::vector<Partial> partials_;  ///< of strictly decreasing sizes
};

/// Neighbouring rows, as elements of the dense gradient.
struct RowRun {
  std::int64_t first;
  std::int64_t count;
};

/// The runs of a sum, ascending.
std::vector<RowRun> runs_of(const IndexedSlices& sum);

/// LOCAL. Writes the dense gradient that has the rows of `sum` to memory of the stream's device.
void write_rows(const IndexedSlices& sum, const TensorView& gradient, Stream& stream);

/// The rows that the ranks have of several gradients, one message a rank. The step counts its length.
class LOCKSTEP_PARTS_API RowExchange {
 public:
  RowExchange() = default;

  /// No message is longer than `most` bytes. By default, all ranks' together stay below 2^31, as MPI counts them.
  RowExchange(int rank, int ranks, std::int64_t most = 0);

  /// LOCAL. Takes `own`, on the host. Values travel as the `types`, which may be narrower: f16 and bf16 for f32.
  void pack(std::vector<IndexedSlices> own, std::span<const DType> types);

  /// By rank: the bytes of its message. This rank's alone after `pack`, to be summed over the ranks.
  std::vector<std::int64_t>& counts() { return counts_; }

  /// COLL, when `counts` are summed. All ranks' rows as [gradient][rank], in the types of `own`.
  std::vector<std::vector<IndexedSlices>> exchange(const RankSums& sums);

 private:
  std::vector<Tensor> gather(Reductions& reductions) const;

  std::size_t rank_ = 0;
  std::int64_t most_ = 0;
  std::vector<IndexedSlices> own_;
  std::vector<DType> types_;
  Tensor message_;
  std::vector<std::int64_t> counts_;
};

}  // namespace lockstep
