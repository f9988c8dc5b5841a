// The columns of a CSV file, by their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/input/labelled_data.hpp>

#include "models/input/csv_reader.hpp"

namespace lockstep {

/// Which columns a file must have.
struct WantedColumns {
  std::string label = {};
  std::vector<std::string> inputs = {};  ///< if empty, all but the label, in the order of the file
  std::string origin = {};               ///< whence `inputs` are: "on which the model was trained"

  /// As the schema says, or else the label of the options.
  static WantedColumns of(const LabelledData::Options& options);
};

/// The columns of a file.
struct CsvColumns {
  std::vector<std::string> names;    ///< as UTF-8
  std::vector<std::size_t> inputs;   ///< the place in a record of each number of a sample
  std::optional<std::size_t> label;  ///< and that of the label

  std::int64_t width() const { return std::ssize(inputs); }

  /// In the order of a sample's numbers.
  std::vector<std::string> input_names() const;
};

/// Cuts the record that has been read. ConfigError if it is not CSV.
void split_record(const CsvReader& reader, std::vector<std::string>& fields);

/// Whether the record that has been read is a comment, which is passed by: it begins with '#', and is no row
/// whose label does.
bool is_comment(const CsvReader& reader, const CsvColumns& columns);

/// Reads the first record that is no comment, up to the header, and cuts it. What begins with '#' is the header if it
/// has a column that is wanted, as numpy.savetxt writes it. False at the end.
bool read_names(CsvReader& reader, const WantedColumns& wanted, std::vector<std::string>& names, char separator = ',');

/// Reads the header. ConfigError if a column has no name of its own and is not wanted by it, if two columns have one
/// name, up to blanks, if those that are wanted are not there, or others are. The label may be missing.
CsvColumns read_header(CsvReader& reader, const WantedColumns& wanted);

/// ConfigError if there is no label column.
void require_label_column(const CsvReader& reader, const CsvColumns& columns, const std::string& label);

}  // namespace lockstep
