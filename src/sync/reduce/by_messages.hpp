// Path::by_messages: collectives that move bytes, with sums in the fixed tree of whoever has all parts.
//
// Sum of S bytes over n ranks, long:                            a rank sends  messages   bytes
//   for each bucket of 4 MiB, cut into n slices:
//   1. every rank sends each other rank its slice,                            n - 1      S (n - 1) / n
//   2. adds up the n parts of its own, in the tree,
//   3. and sends the sum to all, or to the root                               n - 1      S (n - 1) / n
// Sum of up to whole_bytes for all ranks, of tensors of any types:
//   1. every rank sends all that it has to all, or to the root,               n - 1      S (n - 1)
//   2. and each adds up everything itself, in the tree
//
// Where ranks have several subtrees, all ranks take step 1 of a long sum once for each subtree of the rank that has
// most of them. A rank that has fewer sends its last part again, and nobody reads that.
//
// The halves of a sum in slices are steps 1 and 2, and step 3. A broadcast is the communicator's own: S bytes, in about
// log n steps. Rows are exchanged after their numbers (slices.cpp).
//
// The long sum is a reduce-scatter and an all-gather (Rabenseifner 2004), each in one step: all parts of an element
// must meet in one place to be added up in the tree (docs/decisions/0002-fixed-tree-of-sums.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/comm/communicator.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/reduce/request.hpp"

namespace lockstep::detail {

class ByMessages {
 public:
  /// `communicator`, of host memory or a GPU's, must outlive this object.
  explicit ByMessages(Communicator& communicator) : communicator_{communicator} {}

  /// LOCAL. Whether tensors that have room (padded) in so many bytes travel as one exchange, the same on every rank.
  bool takes_whole(std::int64_t bytes) const;

  /// COLL. A sum of one flat tensor, or of several that travel whole; a half of a sum whose slice k belongs to rank k;
  /// a broadcast of flat tensors; or what is asked for rows.
  void run(const Request& request);

  /// COLL. Brings the parts that all ranks have of this rank's slice, and keeps them until the next call. `parts` are
  /// this rank's, `piece` is one of them, and `numbers` are as Shares::numbers. Returns where the parts begin, in the
  /// order of the ranks: so many bytes behind this rank's slice of `piece`.
  std::vector<std::int64_t> exchange_parts(const TensorView& piece, std::span<const TensorView> parts,
                                           std::span<const int> numbers, SliceBounds bounds);

 private:
  void sum_whole(const Request& request);
  void sum_in_buckets(const Request& request);
  void sum_own(const TensorView& piece, SliceBounds bounds, const SumRule& rule, const Subtrees* subtrees);
  void collect(const Request& request, const TensorView& whole, SliceBounds bounds);

  Communicator& communicator_;
  Scratch exchanged_;
};

/// COLL. All ranks' rows, concatenated in rank order, or those of one.
void exchange_rows(Communicator& communicator, const Request& request);

}  // namespace lockstep::detail
