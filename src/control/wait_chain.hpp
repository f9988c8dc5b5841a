// Whom a rank waits for in one group, whom that one waits for in another, and so on.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "control/phase_table.hpp"

namespace lockstep {

/// From a rank that keeps others waiting to the one that holds all of them up.
struct WaitChain {
  std::vector<int> rows;   ///< each waits for the next; not empty
  bool is_circle = false;  ///< the last waits for the first
};

using RowAt = std::function<const PhaseTable::Snapshot&(int row)>;

/// The chain that begins with `first`. It ends with a rank that does not wait, or of which is not known for whom.
WaitChain follow_waits(const RowAt& row, int rows, int first);

/// What is said of a circle.
std::string circle_sentence(const WaitChain& circle, const RowAt& row, std::span<const std::string> names,
                            double seconds);

}  // namespace lockstep
