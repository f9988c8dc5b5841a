// The result of `map`.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

class StrategyExtended;

/// The results for the items that this rank processed, in order. Ranks may hold different numbers of results; `items`
/// is the same on every rank.
template <class T>
class MapOutput {
 public:
  const std::vector<T>& values() const { return values_; }

  /// The number of items on all ranks together.
  std::int64_t items() const { return items_; }

 private:
  friend class StrategyExtended;
  MapOutput(std::vector<T> values, std::int64_t items) : values_{std::move(values)}, items_{items} {}

  std::vector<T> values_;
  std::int64_t items_;
};

}  // namespace lockstep
