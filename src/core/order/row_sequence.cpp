#include "core/order/row_sequence.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/order/sample_order.hpp"

namespace lockstep {

RowSequence::RowSequence(std::int64_t rows, std::optional<std::int64_t> epochs,
                         std::optional<std::uint64_t> shuffle_seed)
    : rows_{rows}, epochs_{epochs}, shuffle_seed_{shuffle_seed} {
  if (rows < 1) throw InvalidArgument{fmt::format("arrays of {} rows; expected 1 or more", rows)};
  if (!epochs) return;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / rows;
  if (*epochs < 1 || *epochs > most)
    throw InvalidArgument{fmt::format("`num_epochs` is {}; expected 1 to {}", *epochs, most)};
}

std::optional<std::int64_t> RowSequence::length() const {
  return epochs_ ? std::optional{rows_ * *epochs_} : std::nullopt;
}

Range RowSequence::within(Range positions) const {
  const std::int64_t end = length().value_or(std::numeric_limits<std::int64_t>::max());
  return {std::min(positions.first, end), std::min(positions.last, end)};
}

std::vector<std::int64_t> RowSequence::rows_at(Range positions) {
  if (positions.first < 0 || positions.last < positions.first || within(positions) != positions)
    throw InvalidArgument{fmt::format("there are no positions {} to {}", positions.first, positions.last)};
  std::vector<std::int64_t> rows;
  rows.reserve(static_cast<std::size_t>(positions.size()));
  for (std::int64_t position = positions.first; position < positions.last; ++position) {
    const std::int64_t epoch = position / rows_, row = position % rows_;
    if (shuffle_seed_ && epoch != ordered_epoch_) {
      order_ = sample_order(rows_, *shuffle_seed_, epoch);
      ordered_epoch_ = epoch;
    }
    rows.push_back(shuffle_seed_ ? order_[static_cast<std::size_t>(row)] : row);
  }
  return rows;
}

}  // namespace lockstep
