// Which ranks share a node, and which rank hears which between nodes. Pure.
#pragma once

#include <span>
#include <vector>

namespace lockstep {

class NodeMap {
 public:
  /// `lowest[rank]` is the lowest rank on that rank's node. Nodes are numbered in the order of their lowest ranks.
  explicit NodeMap(std::span<const int> lowest);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(ranks_on_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }
  bool same_node(int rank, int other) const { return node_of(rank) == node_of(other); }

  /// The ranks of `node`, ascending.
  const std::vector<int>& ranks_on(int node) const { return ranks_on_[static_cast<std::size_t>(node)]; }

  /// The rank of `node` that hears `rank`, of another node, for its neighbours. The ranks of a node share this work.
  int carrier(int rank, int node) const;

 private:
  std::vector<int> node_of_;
  std::vector<int> place_;  ///< of each rank among those of its node
  std::vector<std::vector<int>> ranks_on_;
};

}  // namespace lockstep
