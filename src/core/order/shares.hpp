// How the shards of a batch are spread over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/order/range.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// Adjacent shards for each rank, in the order of ranks: one whole subtree of the sum over all shards,
///
///   tree(first, last) = tree(first, middle) + tree(middle, last), middle = first + the largest power of two below
///   last - first
///
/// so that the ranks only have to add up the rest of the tree. The largest subtree, the first of several, is cut into
/// its two halves, until there is one for each rank. Of a power of two of shards, the largest share is less than twice
/// the mean; all are equal on a power of two of ranks.
class LOCKSTEP_PARTS_API Shares {
 public:
  /// InvalidArgument unless there are one rank or more, and a shard for each.
  Shares(int shards, int ranks);

  int shards() const { return static_cast<int>(bounds_.back()); }
  int ranks() const { return static_cast<int>(bounds_.size()) - 1; }

  Range of(int rank) const;

  /// The number of shards of the rank that has most.
  std::int64_t largest() const;

  /// The rank that has a shard.
  int owner_of(std::int64_t shard) const;

  /// The rest of the tree, for a sum that takes the ranks' parts in order and puts each on a stack: how many additions
  /// follow, each of the two topmost parts. Empty if they are those of as many ranks with one shard each.
  std::vector<std::uint8_t> additions() const;

 private:
  std::vector<std::int64_t> bounds_;
};

}  // namespace lockstep
