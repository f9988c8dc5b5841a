#include "apps/lockstep-report/curves.hpp"

namespace lockstep::report {

void Curves::Range::add(const Range& other) {
  least = std::min(least, other.least);
  greatest = std::max(greatest, other.greatest);
  sum += other.sum;
  count += other.count;
}

Curves::Range Curves::total(std::size_t column) const {
  Range total;
  for (const Point& point : points_) total.add(point.columns[column]);
  return total;
}

void Curves::start_point() {
  if (points_.size() == most_points_) {
    for (std::size_t i = 0; i < points_.size() / 2; ++i) {
      Point merged = points_[2 * i];
      const Point& next = points_[2 * i + 1];
      merged.last = next.last;
      merged.steps += next.steps;
      for (std::size_t column = 0; column < most_columns; ++column) merged.columns[column].add(next.columns[column]);
      points_[i] = merged;
    }
    points_.resize(points_.size() / 2);
    steps_of_a_point_ *= 2;
  }
  points_.emplace_back();
}

}  // namespace lockstep::report
