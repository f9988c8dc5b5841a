// The rows of arrays that are read repeatedly, epoch after epoch, as one sequence of positions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/core/order/range.hpp>

namespace lockstep {

/// A pure function of its arguments and the position, so every rank computes the same rows and none are sent.
class RowSequence {
 public:
  /// Repeats the rows 0 to rows - 1 `epochs` times; if empty, forever. With a seed, each epoch has an order of its own,
  /// `sample_order(rows, shuffle_seed, epoch)`; without one, each keeps the order of the rows. InvalidArgument unless
  /// `rows` and `epochs` are positive and the positions can be counted.
  RowSequence(std::int64_t rows, std::optional<std::int64_t> epochs, std::optional<std::uint64_t> shuffle_seed);

  /// The number of positions; empty if they never end.
  std::optional<std::int64_t> length() const;

  /// The part of `positions` that exists.
  Range within(Range positions) const;

  /// The rows at `positions`, which may span several epochs. Calls with ascending positions cost one permutation per
  /// epoch. InvalidArgument if there are no such positions.
  std::vector<std::int64_t> rows_at(Range positions);

 private:
  std::int64_t rows_;
  std::optional<std::int64_t> epochs_;
  std::optional<std::uint64_t> shuffle_seed_;
  std::int64_t ordered_epoch_ = -1;  ///< the epoch that `order_` belongs to
  std::vector<std::int64_t> order_;
};

}  // namespace lockstep
