// Curves of any length in a bounded number of points, which keep every peak.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::report {

/// Values over the same steps. As points come in, neighbours are merged whenever there are `most_points`, so that each
/// point stands for as many values in a row, and tells their least, their greatest and their mean.
class Curves {
 public:
  static constexpr std::size_t most_columns = 8;

  /// Where a value lies.
  struct Place {
    std::int64_t step = 0;
    double samples = 0;  ///< seen so far; NaN if not known
    double seconds = 0;  ///< of training so far; NaN if not known
  };

  /// Of the finite values of a column.
  struct Range {
    double least = std::numeric_limits<double>::infinity();
    double greatest = -std::numeric_limits<double>::infinity();
    double sum = 0;
    std::int64_t count = 0;

    void add(double value) {
      if (!(value - value == 0)) return;
      least = std::min(least, value);
      greatest = std::max(greatest, value);
      sum += value;
      ++count;
    }
    void add(const Range& other);
    /// NaN without values.
    double mean() const { return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / double(count); }
  };

  struct Point {
    Place last;              ///< of the last value
    std::int64_t steps = 0;  ///< values merged
    std::array<Range, most_columns> columns;
  };

  /// `most_points` is even.
  explicit Curves(std::size_t most_points) : most_points_{most_points} {}

  /// A value that is not finite is none.
  void add(const Place& place, const std::array<double, most_columns>& values) {
    if (points_.empty() || points_.back().steps == steps_of_a_point_) start_point();
    Point& point = points_.back();
    point.last = place;
    ++point.steps;
    for (std::size_t column = 0; column < most_columns; ++column) point.columns[column].add(values[column]);
  }

  const std::vector<Point>& points() const { return points_; }
  /// Of all points.
  Range total(std::size_t column) const;

 private:
  void start_point();

  std::size_t most_points_;
  std::int64_t steps_of_a_point_ = 1;
  std::vector<Point> points_;
};

}  // namespace lockstep::report
