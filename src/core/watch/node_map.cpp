#include "core/watch/node_map.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep {
namespace {

/// With how many powers of two, added or taken away, a number is made at best: the digits of its non-adjacent form
/// (Reitwiesner, Binary arithmetic, 1960).
int steps_over(unsigned distance) {
  return std::popcount((3 * distance) ^ distance);
}

}  // namespace

NodeMap::NodeMap(std::span<const int> lowest) {
  Tables tables;
  tables.node_of.reserve(lowest.size());
  tables.place.reserve(lowest.size());
  for (std::size_t rank = 0; rank < lowest.size(); ++rank) {
    const auto first = static_cast<std::size_t>(lowest[rank]);
    if (first == rank) tables.ranks_on.emplace_back();
    tables.node_of.push_back(first == rank ? static_cast<int>(tables.ranks_on.size()) - 1 : tables.node_of[first]);
    auto& neighbours = tables.ranks_on[static_cast<std::size_t>(tables.node_of.back())];
    tables.place.push_back(static_cast<int>(neighbours.size()));
    neighbours.push_back(static_cast<int>(rank));
  }
  tables_ = std::make_shared<const Tables>(std::move(tables));
  for (int distance = 1; distance <= nodes() / 2; ++distance)
    steps_ = std::max(steps_, steps_over(static_cast<unsigned>(distance)));
}

int NodeMap::carrier(int rank, int node) const {
  const std::vector<int>& there = ranks_on(node);
  return there[static_cast<std::size_t>(tables_->place[static_cast<std::size_t>(rank)]) % there.size()];
}

bool NodeMap::are_near(int node, int other) const {
  const auto up = static_cast<unsigned>((other - node + nodes()) % nodes());
  return node != other && (std::has_single_bit(up) || std::has_single_bit(static_cast<unsigned>(nodes()) - up));
}

std::vector<int> NodeMap::next_on(Route route, int origin, int node) const {
  const bool up = route == Route::up_by_long_steps || route == Route::up_by_short_steps;
  const bool long_first = route == Route::up_by_long_steps || route == Route::down_by_long_steps;
  const int gone = ((up ? node - origin : origin - node) + nodes()) % nodes();
  // The way to a distance is the ones in its binary form, in the order of the route. A node adds those that may follow
  // the last that led to it.
  const auto follows = [&](int step) { return gone == 0 || (long_first ? step < (gone & -gone) : step > gone); };
  std::vector<int> next;
  for (int step = 1; step + gone < nodes(); step *= 2)
    if (follows(step)) next.push_back((node + (up ? step : nodes() - step)) % nodes());
  return next;
}

}  // namespace lockstep
