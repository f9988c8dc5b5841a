// Which ranks share a node, which rank hears which between nodes, and how a row comes to all of them. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// The nodes are on a ring, in the order of their numbers. Nodes are near each other if their distance on it is a power
/// of two, so each has about 2 log2(n) of n near it. Up to five nodes are all near each other.
class NodeMap {
 public:
  /// How a row travels from its own node to all others: up or down the ring, with its long steps first or its short
  /// ones. On each route it comes to each node once, after at most log2(n) steps between nodes that are near each
  /// other. What goes up to a node and what goes down to it share no node on their ways, so a node that does not pass
  /// rows on hides no other.
  enum class Route : std::uint32_t { up_by_long_steps, down_by_long_steps, up_by_short_steps, down_by_short_steps };
  static constexpr std::uint32_t routes = 4;

  /// `lowest[rank]` is the lowest rank on that rank's node. Nodes are numbered in the order of their lowest ranks.
  /// Copies share what they hold.
  explicit NodeMap(std::span<const int> lowest);

  int ranks() const { return static_cast<int>(tables_->node_of.size()); }
  int nodes() const { return static_cast<int>(tables_->ranks_on.size()); }
  int node_of(int rank) const { return tables_->node_of[static_cast<std::size_t>(rank)]; }
  bool same_node(int rank, int other) const { return node_of(rank) == node_of(other); }

  /// The ranks of `node`, ascending.
  const std::vector<int>& ranks_on(int node) const { return tables_->ranks_on[static_cast<std::size_t>(node)]; }

  /// The rank of `node` that hears `rank`, of another node, for its neighbours. The ranks of a node share this work.
  int carrier(int rank, int node) const;

  /// Whether these are different nodes that are near each other.
  bool are_near(int node, int other) const;

  /// Whether every node is near every other.
  bool are_all_near() const { return steps_ <= 1; }

  /// In how many steps between near nodes each node can be reached from each.
  int steps() const { return steps_; }

  /// To which nodes `node` passes on what comes from `origin`, which may be itself.
  std::vector<int> next_on(Route route, int origin, int node) const;

 private:
  struct Tables {
    std::vector<int> node_of;
    std::vector<int> place;  ///< of each rank among those of its node
    std::vector<std::vector<int>> ranks_on;
  };
  std::shared_ptr<const Tables> tables_;
  int steps_ = 0;
};

}  // namespace lockstep
