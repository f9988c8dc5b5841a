// How the ranks of a node carry one tensor between nodes: each takes a slice of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/node_sums.hpp"
#include "reduce/shared_sums.hpp"
#include "reduce/slice_map.hpp"

namespace lockstep::detail {

/// A slice that holds the sum over this rank's node. To be replaced by the sum over all nodes, in place.
using BetweenNodes = std::function<void(const TensorView& slice)>;

/// A carrier's slice of a message in slices, cut further, into one slice for each node.
using SlicedBetweenNodes = std::function<void(const Sliced& slice)>;

/// The ranks of one node, of which the first `carriers` carry a slice each.
class NodeSlices {
 public:
  /// `node` must outlive this object.
  NodeSlices(Communicator& node, int carriers) : node_{node}, carriers_{carriers} {
    if (NodeMemory* const memory = node.node_memory()) shared_.emplace(*memory);
  }

  /// COLL over the node, blocking, for host tensors. In place, on every rank: sums over the node's ranks in the fixed
  /// order, calls `between` on each carrier, for pieces of its slice, and brings the slices together. Pieces are cut
  /// alike on nodes of any size.
  void sum(const TensorView& flat, const BetweenNodes& between);

  /// The same in halves, for messages whose pieces are cut into a slice for each carrier, and this into one for each of
  /// `nodes`. The first sums over the node and then calls `between`; the second calls it and then brings the carriers'
  /// slices together.
  void scatter(const Sliced& message, int nodes, const SlicedBetweenNodes& between);
  void gather(std::span<const Sliced> messages, int nodes, const SlicedBetweenNodes& between);

  /// LOCAL. How `sum` and `scatter` cut a message, for NodeSums.
  std::vector<NodePiece> pieces_of(const TensorView& flat) const;
  std::vector<NodePiece> pieces_of(const Sliced& message, int nodes) const;

 private:
  Sliced in_node(const Sliced& message, int nodes) const;
  void for_each_slice(const Sliced& message, int nodes, const SlicedBetweenNodes& body) const;
  std::vector<std::int64_t> bounds_of(const TensorView& bucket) const;

  Communicator& node_;
  int carriers_;
  std::optional<SharedSums> shared_;
  Scratch received_;
};

}  // namespace lockstep::detail
