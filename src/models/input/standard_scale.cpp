#include "models/input/standard_scale.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "models/input/failure.hpp"

namespace lockstep {
namespace {

/// A deviation up to this is what rounding leaves of equal numbers, such as 0.3 and 0.1 + 0.2.
double rounding_of(double number) {
  return 2 * std::numeric_limits<double>::epsilon() * std::abs(number);
}

/// Mean and deviation of the numbers so far, in one pass and without the cancellation of a sum of squares (Welford's
/// method). Equal numbers have their own value as the mean, and no deviation, whatever they are.
class Moments {
 public:
  void push(double number) {
    ++count_;
    const double from_mean = number - mean_;
    mean_ += from_mean / static_cast<double>(count_);
    squares_ += from_mean * (number - mean_);
  }

  DataSchema::Scale scale(const std::string& name, const std::filesystem::path& path) const {
    const double deviation = std::sqrt(squares_ / static_cast<double>(count_));
    if (!std::isfinite(mean_) || !std::isfinite(deviation))
      fail_file(path, fmt::format("column \"{}\" has a mean of {} and a deviation of {}; expected numbers that are "
                                  "small enough for finite ones",
                                  excerpt(name), mean_, deviation));
    return {mean_, deviation > rounding_of(mean_) ? deviation : 1};
  }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

}  // namespace

std::vector<DataSchema::Scale> standard_scales(const NumberRows& rows, const std::vector<std::string>& names,
                                               const std::filesystem::path& path) {
  std::vector<Moments> columns(names.size());
  std::vector<double> numbers(names.size());
  for (std::int64_t row = 0; row < rows.count(); ++row) {
    rows.read(row, std::span{numbers});
    for (std::size_t column = 0; column < columns.size(); ++column) columns[column].push(numbers[column]);
  }
  std::vector<DataSchema::Scale> scales;
  for (std::size_t column = 0; column < columns.size(); ++column)
    scales.push_back(columns[column].scale(names[column], path));
  return scales;
}

bool are_equal_up_to_rounding(std::span<const double> numbers) {
  const auto [least, most] = std::ranges::minmax(numbers);
  return most - least <= 2 * rounding_of(std::max(std::abs(least), std::abs(most)));
}

DataSchema::Scale standard_scale(std::span<const double> numbers, const std::string& name,
                                 const std::filesystem::path& path) {
  Moments moments;
  for (const double number : numbers) moments.push(number);
  return moments.scale(name, path);
}

template <class Real>
Real scaled(double number, const DataSchema::Scale& scale, const std::string& name) {
  const auto result = static_cast<Real>((number - scale.mean) / scale.deviation);
  if (!std::isfinite(result))
    throw ConfigError{
        fmt::format("column \"{}\" has the number {}; expected one that is finite after scaling by the mean {} and the "
                    "deviation {} "
                    "of the training set",
                    excerpt(name), number, scale.mean, scale.deviation)};
  return result;
}

template float scaled<float>(double, const DataSchema::Scale&, const std::string&);
template double scaled<double>(double, const DataSchema::Scale&, const std::string&);

}  // namespace lockstep
