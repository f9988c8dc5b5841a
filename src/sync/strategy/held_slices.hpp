// Which rank updates which part of a segment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/reduce/slice_map.hpp"

namespace lockstep::detail {

/// How the ranks share the update of variables.
struct Sharding {
  Packing packing;
  std::vector<int> owners;  ///< Reductions::slice_owners
  int rank;
};

/// The slices of a segment, and those that this rank holds.
class HeldSlices {
 public:
  HeldSlices(SliceMap map, int rank) : map_{std::move(map)}, own_{map_.of(rank)} {
    for (const SliceMap::Slice& slice : own_) positions_.push_back(std::exchange(count_, count_ + slice.count));
  }

  const SliceMap& map() const { return map_; }

  /// The number of elements in this rank's slices.
  std::int64_t count() const { return count_; }

  /// Where [first, first + count) of the segment is among this rank's slices. InvalidArgument unless one holds it all.
  std::int64_t position_of(std::int64_t first, std::int64_t count) const {
    const auto next = std::ranges::upper_bound(own_, first, {}, &SliceMap::Slice::first);
    if (next != own_.begin()) {
      const auto slice = std::prev(next);
      if (first + count <= slice->first + slice->count)
        return positions_[static_cast<std::size_t>(slice - own_.begin())] + first - slice->first;
    }
    throw InvalidArgument{
        fmt::format("elements {} to {} are in no slice that this rank updates", first, first + count)};
  }

  /// This rank's parts of [first, first + count), as positions in the segment.
  std::vector<SliceMap::Slice> own_in(std::int64_t first, std::int64_t count) const {
    std::vector<SliceMap::Slice> parts;
    for (const SliceMap::Slice& slice : own_) {
      const std::int64_t begin = std::max(first, slice.first);
      const std::int64_t end = std::min(first + count, slice.first + slice.count);
      if (begin < end) parts.push_back({begin, end - begin});
    }
    return parts;
  }

 private:
  SliceMap map_;
  std::vector<SliceMap::Slice> own_;     ///< this rank's, ascending
  std::vector<std::int64_t> positions_;  ///< of each, in a slot's memory
  std::int64_t count_ = 0;
};

}  // namespace lockstep::detail
