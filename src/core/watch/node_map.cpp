#include "core/watch/node_map.hpp"

namespace lockstep {

NodeMap::NodeMap(std::span<const int> lowest) {
  for (std::size_t rank = 0; rank < lowest.size(); ++rank) {
    const auto first = static_cast<std::size_t>(lowest[rank]);
    if (first == rank) ranks_on_.emplace_back();
    node_of_.push_back(first == rank ? nodes() - 1 : node_of_[first]);
    auto& neighbours = ranks_on_[static_cast<std::size_t>(node_of_.back())];
    place_.push_back(static_cast<int>(neighbours.size()));
    neighbours.push_back(static_cast<int>(rank));
  }
}

int NodeMap::carrier(int rank, int node) const {
  const std::vector<int>& there = ranks_on(node);
  return there[static_cast<std::size_t>(place_[static_cast<std::size_t>(rank)]) % there.size()];
}

}  // namespace lockstep
