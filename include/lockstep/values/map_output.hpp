// What `map` gives.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

class StrategyExtended;

/// The results for those of `items` that this rank took, in order. Their number differs by rank; that of all items is
/// the same everywhere.
template <class T>
class MapOutput {
 public:
  const std::vector<T>& values() const { return values_; }

  /// Of all ranks together.
  std::int64_t items() const { return items_; }

 private:
  friend class StrategyExtended;
  MapOutput(std::vector<T> values, std::int64_t items) : values_{std::move(values)}, items_{items} {}

  std::vector<T> values_;
  std::int64_t items_;
};

}  // namespace lockstep
