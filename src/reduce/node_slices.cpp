#include "reduce/node_slices.hpp"

#include <algorithm>
#include <memory>
#include <utility>
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
  for (const NodePiece& piece : pieces_of(flat)) {
    const TensorView& bucket = piece.memory;
    const SliceBounds bounds = piece.bounds;
    const TensorView mine = bucket.slice(bounds[rank], bounds[rank + 1] - bounds[rank]);
    const auto between_nodes = [&] {
      if (mine.count() > 0) between(mine);
    };
    if (node_.size() == 1) {
      between_nodes();
    } else if (shared_) {
      shared_->sum_slices(bucket, bounds, between_nodes);
    } else {
      sum_own_slice(node_, received_, bucket, bounds);
      between_nodes();
      node_.all_gather(bucket, bounds).wait();
    }
  }
}

std::vector<NodePiece> NodeSlices::pieces_of(const TensorView& flat) const {
  const std::int64_t longest = bucket_bytes / static_cast<std::int64_t>(size_of(flat.dtype()));
  std::vector<NodePiece> pieces;
  for (std::int64_t first = 0; first < flat.count(); first += longest) {
    const TensorView bucket = flat.slice(first, std::min(longest, flat.count() - first));
    pieces.push_back({bucket, bounds_of(bucket)});
  }
  return pieces;
}

std::vector<NodePiece> NodeSlices::pieces_of(const Sliced& message, int nodes) const {
  const Sliced here = in_node(message, nodes);
  std::vector<NodePiece> pieces;
  for (std::size_t i = 0; i < here.slices->pieces(); ++i) {
    const SliceBounds bounds = here.slices->bounds(i);
    NodePiece piece{message.memory.slice(bounds.front(), bounds.back() - bounds.front()), from_zero(bounds)};
    piece.between.assign(static_cast<std::size_t>(nodes) + 1, 0);
    if (node_.rank() < carriers_)
      piece.between = from_zero(message.slices->bounds(i).subspan(static_cast<std::size_t>(node_.rank() * nodes),
                                                                  static_cast<std::size_t>(nodes) + 1));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// The message with a slice for every rank of the node.
Sliced NodeSlices::in_node(const Sliced& message, int nodes) const {
  std::vector<std::int64_t> bounds;
  for (std::size_t i = 0; i < message.slices->pieces(); ++i) {
    const SliceBounds all = message.slices->bounds(i);
    for (std::size_t k = 0; k < all.size(); k += static_cast<std::size_t>(nodes)) bounds.push_back(all[k]);
    bounds.resize((i + 1) * (static_cast<std::size_t>(node_.size()) + 1), all.back());
  }
  return {message.memory, std::make_shared<const SliceMap>(std::move(bounds), owners_in_order(node_.size())),
          message.through};
}

/// Calls `body` for this rank's slices of the pieces, if it carries some.
void NodeSlices::for_each_slice(const Sliced& message, int nodes, const SlicedBetweenNodes& body) const {
  if (node_.rank() >= carriers_) return;
  for (std::size_t i = 0; i < message.slices->pieces(); ++i) {
    const SliceBounds mine = message.slices->bounds(i).subspan(static_cast<std::size_t>(node_.rank() * nodes),
                                                               static_cast<std::size_t>(nodes) + 1);
    if (mine.front() < mine.back())
      body({message.memory.slice(mine.front(), mine.back() - mine.front()),
            std::make_shared<const SliceMap>(from_zero(mine), owners_in_order(nodes))});
  }
}

void NodeSlices::scatter(const Sliced& message, int nodes, const SlicedBetweenNodes& between) {
  if (node_.size() > 1) {
    const Sliced here = in_node(message, nodes);
    shared_ ? shared_->sum_own(here) : sum_own_slices(node_, received_, here);
  }
  for_each_slice(message, nodes, between);
}

void NodeSlices::gather(std::span<const Sliced> messages, int nodes, const SlicedBetweenNodes& between) {
  std::vector<Sliced> here;
  for (const Sliced& message : messages) {
    for_each_slice(message, nodes, between);
    here.push_back(in_node(message, nodes));
  }
  if (node_.size() == 1) return;
  if (shared_) return shared_->spread(here);
  for (const Sliced& each : here) gather_pieces(node_, each);
}

}  // namespace lockstep::detail
