// How the shards of a batch are spread over ranks.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <lockstep/core/order/range.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// Adjacent shards for each rank, in the order of ranks, in subtrees of the sum over all shards,
///
///   tree(first, last) = tree(first, middle) + tree(middle, last), middle = first + the largest power of two below
///   last - first
///
/// so that each rank adds up its own subtrees, and the ranks only have to add up the rest of the tree.
class LOCKSTEP_PARTS_API Shares {
 public:
  /// One whole subtree for each rank. The largest subtree, the first of several, is cut into its two halves, until
  /// there is one for each rank. Of a power of two of shards, the largest share is less than twice the mean; all are
  /// equal on a power of two of ranks. InvalidArgument unless there are one rank or more, and a shard for each.
  Shares(int shards, int ranks);

  static constexpr int most_subtrees = 3;  ///< that `even` gives to a rank. The more a rank has, the more it sends.

  /// Up to most_subtrees for each rank, so that the largest share is as small as it can be, with the fewest subtrees in
  /// all: one for each rank if more would not make it smaller.
  static Shares even(int shards, int ranks);

  int shards() const { return static_cast<int>(bounds_.back()); }
  int ranks() const { return static_cast<int>(bounds_.size()) - 1; }

  Range of(int rank) const;

  /// The number of shards of the rank that has most.
  std::int64_t largest() const;

  /// The rank that has a shard.
  int owner_of(std::int64_t shard) const;

  /// Whether a rank has several subtrees.
  bool has_several() const { return std::ssize(subtrees_) > ranks(); }

  /// The subtrees of all ranks in order, and those of one. They are numbered in that order: those of rank r begin with
  /// numbers()[r], and end before numbers()[r + 1].
  std::span<const Range> subtrees() const { return subtrees_; }
  std::span<const Range> subtrees_of(int rank) const;
  std::span<const int> numbers() const { return numbers_; }

  /// The most subtrees of a rank.
  int most_of_rank() const;

  /// Those of runs of neighbouring ranks, of so many each, in the largest subtrees that the shards of a run make.
  Shares over(std::span<const int> runs) const;
  friend bool operator==(const Shares&, const Shares&) = default;

  /// The rest of the tree, for a sum that takes the subtrees in order and puts each on a stack: how many additions
  /// follow, each of the two topmost parts. Empty if they are those of as many ranks with one shard each.
  std::vector<std::uint8_t> additions() const;

  /// The same within one subtree that is made of subtrees [first, last). Never empty.
  std::vector<std::uint8_t> additions_in(int first, int last) const;

 private:
  explicit Shares(std::vector<std::int64_t> bounds);

  std::vector<std::int64_t> bounds_;
  std::vector<Range> subtrees_;
  std::vector<int> numbers_;
};

}  // namespace lockstep
