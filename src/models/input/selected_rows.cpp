#include "models/input/selected_rows.hpp"

#include <cmath>

namespace lockstep {
namespace {

/// Multiplies by 2^64 over the golden ratio, as hash tables do (Knuth's multiplicative method). Successive rows spread
/// evenly over the range, so every piece of a file, and every class of a sorted one, has its share of test rows. A
/// random hash would leave small files and small classes without any.
std::uint64_t hash_of_row(std::int64_t row) {
  return (static_cast<std::uint64_t>(row) + 1) * 0x9e3779b97f4a7c15;
}

}  // namespace

SplitRows split_rows(std::int64_t count, DataSchema::Split split, double test_fraction) {
  const auto below = static_cast<std::uint64_t>(std::ldexp(test_fraction, 64));
  const std::int64_t last = count - static_cast<std::int64_t>(std::floor(static_cast<double>(count) * test_fraction));
  SplitRows rows;
  for (std::int64_t row = 0; row < count; ++row) {
    const bool tests = split == DataSchema::Split::hash ? hash_of_row(row) < below : row >= last;
    (tests ? rows.test : rows.train).push_back(row);
  }
  return rows;
}

}  // namespace lockstep
