#include "reduce/node_slices.hpp"

#include <algorithm>
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

}  // namespace lockstep::detail
