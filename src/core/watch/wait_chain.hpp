// Waits that lead from group to group: a rank waits for another, which waits in another group, and so on.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/control/phase_table.hpp"

namespace lockstep {

/// From a rank that waits to the one that holds it up.
struct WaitChain {
  std::vector<int> rows;   ///< each waits for the next; at least two
  bool is_circle = false;  ///< the last waits for the first, which is then the lowest
  int cause() const { return rows.back(); }
  int waits_for_cause() const { return rows[rows.size() - 2]; }
};

using RowAt = std::function<PhaseTable::Snapshot(int row)>;

/// `waiting` waits for `late`. Ends with a rank that is not known to wait. A circle need not include `waiting`.
WaitChain follow_waits(const RowAt& row, int rows, int waiting, int late);

/// The sentence about a circle.
std::string circle_sentence(const WaitChain& circle, const RowAt& row, std::span<const std::string> names,
                            double seconds);

}  // namespace lockstep
