#include "reduce/node_slices.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/element_type.hpp"
#include "comm/slices.hpp"
#include "reduce/arithmetic.hpp"

namespace lockstep::detail {

/// Ranks that carry nothing have empty slices.
std::vector<std::int64_t> NodeSlices::bounds_of(const TensorView& bucket) const {
  auto bounds = even_slices(bucket.count(), carriers_);
  bounds.resize(static_cast<std::size_t>(node_.size()) + 1, bucket.count());
  return bounds;
}

void NodeSlices::sum(const TensorView& flat, const BetweenNodes& between) {
  const auto rank = static_cast<std::size_t>(node_.rank());
  const std::int64_t longest = bucket_bytes / static_cast<std::int64_t>(size_of(flat.dtype()));
  for (std::int64_t first = 0; first < flat.count(); first += longest) {
    const TensorView bucket = flat.slice(first, std::min(longest, flat.count() - first));
    const auto bounds = bounds_of(bucket);
    const TensorView mine = bucket.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
    const auto between_nodes = [&] {
      if (mine.count() > 0) between(mine);
    };
    if (node_.size() == 1) {
      between_nodes();
    } else if (shared_) {
      shared_->sum_slices(bucket, bounds, between_nodes);
    } else {
      const TensorView received = received_.take(node_, flat.dtype(), mine.count() * node_.size());
      node_.all_to_all(bucket, bounds, received).wait();
      if (mine.count() > 0)
        tree_sum({.first = received.slice(0, mine.count()), .stride = mine.count(), .count = node_.size()}, 1, mine,
                 node_.stream());
      between_nodes();
      node_.all_gather(bucket, bounds).wait();
    }
  }
}

/// The bounds of a slice for every rank of the node.
std::vector<std::vector<std::int64_t>> NodeSlices::pieces_of(const SliceMap& slices, int nodes) const {
  std::vector<std::vector<std::int64_t>> pieces;
  for (std::size_t i = 0; i < slices.pieces(); ++i) {
    const SliceBounds all = slices.bounds(i);
    std::vector<std::int64_t>& bounds = pieces.emplace_back();
    for (std::size_t k = 0; k < all.size(); k += static_cast<std::size_t>(nodes)) bounds.push_back(all[k]);
    bounds.resize(static_cast<std::size_t>(node_.size()) + 1, all.back());
  }
  return pieces;
}

/// Calls `body` for this rank's slices of the pieces, if it carries some.
void NodeSlices::for_each_slice(const Sliced& message, int nodes, const SlicedBetweenNodes& body) const {
  if (node_.rank() >= carriers_) return;
  std::vector<int> order(static_cast<std::size_t>(nodes));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i < message.slices.pieces(); ++i) {
    const SliceBounds mine =
        message.slices.bounds(i).subspan(static_cast<std::size_t>(node_.rank() * nodes), order.size() + 1);
    if (mine.front() < mine.back())
      body({message.memory.slice(mine.front(), mine.back() - mine.front()), SliceMap{from_zero(mine), order}});
  }
}

void NodeSlices::scatter(const Sliced& message, int nodes, const SlicedBetweenNodes& between) {
  const std::vector<std::vector<std::int64_t>> pieces = pieces_of(message.slices, nodes);
  if (node_.size() > 1 && shared_) shared_->sum_own(message.memory, pieces);
  if (node_.size() > 1 && !shared_)
    for (const std::vector<std::int64_t>& bounds : pieces) {
      const auto rank = static_cast<std::size_t>(node_.rank());
      const TensorView piece = message.memory.slice(bounds.front(), bounds.back() - bounds.front());
      const TensorView mine = message.memory.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
      const TensorView received = received_.take(node_, mine.dtype(), mine.count() * node_.size());
      node_.all_to_all(piece, from_zero(bounds), received).wait();
      if (mine.count() > 0)
        tree_sum({.first = received.slice(0, mine.count()), .stride = mine.count(), .count = node_.size()}, 1, mine,
                 node_.stream());
    }
  for_each_slice(message, nodes, between);
}

void NodeSlices::gather(std::span<const Sliced> messages, int nodes, const SlicedBetweenNodes& between) {
  std::vector<SharedSums::Spread> all;
  for (const Sliced& message : messages) {
    for_each_slice(message, nodes, between);
    all.push_back({message.memory, message.through, pieces_of(message.slices, nodes)});
  }
  if (node_.size() == 1) return;
  if (shared_) return shared_->spread(all);
  for (const SharedSums::Spread& each : all)
    for (const std::vector<std::int64_t>& bounds : each.pieces)
      node_.all_gather(each.flat.slice(bounds.front(), bounds.back() - bounds.front()), from_zero(bounds)).wait();
}

}  // namespace lockstep::detail
