// The labels of a CSV file: classes, which are numbers from 0 or names, or in a regression any numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/input/csv_reader.hpp"

namespace lockstep {

/// Takes the labels of one file, row by row.
class CsvLabels {
 public:
  /// For classes that are known. `origin` says from where, for messages: ", as in train.csv".
  static CsvLabels known(std::string column, std::vector<std::string> classes, std::string origin);

  /// For classes that the labels tell. If all labels are whole numbers from 0, these are the classes, and there are
  /// `count` of them or, without it, one more than the largest label. Otherwise, the classes are the different labels
  /// in the order of their bytes, and must be `count`, if that is given.
  static CsvLabels open(std::string column, std::optional<std::int64_t> count);

  /// For a regression. Labels must be finite in `dtype`.
  static CsvLabels numbers(std::string column, DType dtype);

  /// Whether `field` is a missing label, and what is expected instead.
  bool lacks(const std::string& field) const;
  std::string expected() const;

  /// ConfigError if `field`, of the record that `reader` has read, is missing or no class, or no number.
  void push(const CsvReader& reader, const std::string& field);

  /// The class of each row; none in a regression. ConfigError if the labels tell only one class, or other classes than
  /// `count` allows.
  std::vector<std::int32_t> finish(const CsvReader& reader);

  /// The number of each row in a regression.
  std::vector<double> finish_numbers() { return std::exchange(numbers_, {}); }

  /// Call it after finish().
  const std::vector<std::string>& classes() const { return classes_; }

 private:
  /// The class of a label or, while classes are not known, its place among the different labels; and the line on which
  /// it occurs first.
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
