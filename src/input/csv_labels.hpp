// The labels of a CSV file: classes, which are numbers from 0 or names, or in a regression any numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "input/csv_reader.hpp"

namespace lockstep {

/// Takes the labels of one file, row by row.
class CsvLabels {
 public:
  /// Of classes that are known. `origin` says whence: ", as in train.csv".
  static CsvLabels known(std::string column, std::vector<std::string> classes, std::string origin);

  /// Of classes that the labels tell: numbers if all of them are whole numbers from 0, and otherwise names, in the
  /// order of their bytes. `count` is how many there must be.
  static CsvLabels open(std::string column, std::optional<std::int64_t> count);

  /// Of a regression. They must be finite in `dtype`.
  static CsvLabels numbers(std::string column, DType dtype);

  /// ConfigError if `field`, of the record that `reader` has read, is missing or no class, or no number.
  void push(const CsvReader& reader, const std::string& field);

  /// The class of each row. ConfigError if the labels tell only one class, or not as many as there must be. None in a
  /// regression, which has the number of each row instead.
  std::vector<std::int32_t> finish(const CsvReader& reader);
  std::vector<double> finish_numbers() { return std::exchange(numbers_, {}); }

  /// Call it after finish().
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  /// A label's class, or if classes are not known its place among those that differ; and where it is for the first
  /// time.
  struct Seen {
    std::int32_t code;
    std::int64_t line;
  };

  CsvLabels(std::string column, std::vector<std::string> classes, std::optional<std::int64_t> count, std::string origin)
      : column_{std::move(column)}, classes_{std::move(classes)}, count_{count}, origin_{std::move(origin)} {}

  bool is_open() const { return classes_.empty() && !number_type_; }
  double number_of(const CsvReader& reader, const std::string& field) const;
  std::int32_t class_of(const CsvReader& reader, const std::string& field) const;
  std::int32_t next_code(const CsvReader& reader, const std::string& field) const;
  std::vector<std::int32_t> numbers_of_codes(const CsvReader& reader);
  std::vector<std::int32_t> names_of_codes(const CsvReader& reader);
  [[noreturn]] void fail(const CsvReader& reader, std::int64_t line, const std::string& field,
                         const std::string& expected) const;

  std::string column_;
  std::vector<std::string> classes_;
  std::optional<std::int64_t> count_;
  std::string origin_;
  bool numbered_ = false;  ///< known classes are numbers
  std::unordered_map<std::string, Seen> seen_;
  std::vector<std::int32_t> codes_;
  std::optional<DType> number_type_;  ///< in a regression
  std::vector<double> numbers_;
};

}  // namespace lockstep
