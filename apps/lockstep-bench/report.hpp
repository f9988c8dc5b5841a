// What a benchmark reports: rows of cells that carry their names and units, so that the columns of the table and the
// keys of the JSON are one list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/descriptor.hpp"

namespace lockstep::bench {

/// Where a table shows a value. One that is the same in all rows goes into the title, to leave room for columns.
enum class Place : std::uint8_t { column, title };

struct Cell {
  const char* name;  ///< heading of the column, and key in the JSON
  const char* unit;  ///< printed below the name; "" if there is none
  std::variant<std::int64_t, double, std::string> value;
  Place place = Place::column;
  std::size_t digits = 10;  ///< room in the column, in characters
};

/// "8", "64K", "1M".
std::string size_text(std::int64_t bytes);

/// Every row of a benchmark has the same names in the same order.
using Row = std::vector<Cell>;

/// The run that the rows describe.
struct Subject {
  std::string bench;  ///< "all-reduce"
  int ranks = 0;
  std::string device;  ///< "cpu"
};

/// Takes rows as they are measured.
using AddRow = std::function<void(const Row&)>;

/// What a table begins with, in lines of up to 100 columns: "# lockstep-bench step: 2 ranks, device cpu, model mlp\n".
std::string table_title(const Subject& subject, const Row& row);

/// "#    bytes    time\n#      (B)    (us)\n": the names and units of a row's columns.
std::string table_head(const Row& row);

/// The values, aligned below the names of `table_head`.
std::string table_line(const Row& row);

/// {"bench","ranks","device","rows":[…]} on one line, with an object for each row.
std::string to_json(const Subject& subject, const std::vector<Row>& rows);

/// The report of a run, written by one rank: each row in a table on stdout as it is measured, and all rows in a JSON
/// file at the end.
class Report {
 public:
  /// Creates the JSON file, unless `json` is empty. ConfigError, naming --json, if it cannot be written, or is a file
  /// of something else; CheckpointError if the disk is full.
  Report(Subject subject, std::filesystem::path json);

  void add(const Row& row);

  /// Writes the JSON file, in the place of what was there. CheckpointError, naming it, if that fails.
  void finish();

 private:
  Subject subject_;
  std::vector<Row> rows_;
  std::string name_;  ///< of the JSON file, in messages
  std::optional<Descriptor> file_;
};

}  // namespace lockstep::bench
