// Columns of numbers that are scaled to a mean of 0 and a standard deviation of 1.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <lockstep/models/input/schema.hpp>

#include "models/input/number_rows.hpp"

namespace lockstep {

/// Of each column, computed row by row. ConfigError, which begins with `path`, for a column with a mean or a deviation
/// that is no finite number. `names` are those of the columns.
std::vector<DataSchema::Scale> standard_scales(const NumberRows& rows, const std::vector<std::string>& names,
                                               const std::filesystem::path& path);

/// Whether numbers, of which there are some, differ by no more than rounding may leave of equal ones.
bool are_equal_up_to_rounding(std::span<const double> numbers);

/// As standard_scales, of one column.
DataSchema::Scale standard_scale(std::span<const double> numbers, const std::string& name,
                                 const std::filesystem::path& path);

/// What `number`, of a column of this name, becomes in f32 or f64. ConfigError if it is too far from the mean.
template <class Real>
Real scaled(double number, const DataSchema::Scale& scale, const std::string& name);

extern template float scaled<float>(double, const DataSchema::Scale&, const std::string&);
extern template double scaled<double>(double, const DataSchema::Scale&, const std::string&);

}  // namespace lockstep
