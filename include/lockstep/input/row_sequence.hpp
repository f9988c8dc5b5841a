// The rows of arrays that are read over and over, epoch after epoch, as one sequence of positions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/input/range.hpp>

namespace lockstep {

/// A function of its arguments and of the position alone, so every rank computes the same rows and nobody sends them.
class RowSequence {
 public:
  /// `epochs` times the rows 0 to rows - 1, for ever without it. Each epoch is in an order of its own, which is
  /// `sample_order(rows, shuffle_seed, epoch)`, or without a seed in the order of the rows. InvalidArgument unless
  /// `rows` and `epochs` are positive and the positions can be counted.
  RowSequence(std::int64_t rows, std::optional<std::int64_t> epochs, std::optional<std::uint64_t> shuffle_seed);

  /// How many positions there are; nothing where they never end.
  std::optional<std::int64_t> length() const;

  /// The part of `positions` that there is.
  Range within(Range positions) const;

  /// The rows at `positions`, which may lie in several epochs. Those that ascend from call to call cost one permutation
  /// an epoch. InvalidArgument where there are no such positions.
  std::vector<std::int64_t> rows_at(Range positions);

 private:
  std::int64_t rows_;
  std::optional<std::int64_t> epochs_;
  std::optional<std::uint64_t> shuffle_seed_;
  std::int64_t ordered_epoch_ = -1;  ///< the one that `order_` is of
  std::vector<std::int64_t> order_;
};

}  // namespace lockstep
