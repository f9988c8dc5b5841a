// A half-open range of positions.
#pragma once

#include <cstdint>

namespace lockstep {

/// Positions first, first + 1, … last - 1. Empty if first == last.
struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;

  std::int64_t size() const { return last - first; }
  bool operator==(const Range&) const = default;
};

}  // namespace lockstep
