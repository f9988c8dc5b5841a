// What is wrong with the fields of a table: all of it in one line, with a way out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

#include "models/input/csv_header.hpp"
#include "models/input/csv_reader.hpp"

namespace lockstep {

/// Whether a label is none, as tables mark it.
bool is_missing_label(std::string_view field);

/// Throws a ConfigError for the record that `reader` has read, of which `fields` holds a wrong one at `place`. Reads
/// on, so that it can tell which columns have wrong fields, how many, and how the file becomes one of numbers.
/// `expected` is of the first one.
[[noreturn]] void fail_with_all_faults(CsvReader& reader, const CsvColumns& columns, std::vector<std::string> fields,
                                       std::size_t place, std::string_view expected, DType dtype);

}  // namespace lockstep
