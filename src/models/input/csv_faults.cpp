#include "models/input/csv_faults.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/lower_case.hpp"
#include "models/input/conversion.hpp"

namespace lockstep {
namespace {

/// More would keep a user waiting for the message.
constexpr std::int64_t most_fields = 20'000'000;
/// A column of more different words is none of categories: it names its rows. So does one whose words hardly repeat.
constexpr std::size_t most_categories = 50, fewest_names = 10;
constexpr std::size_t most_columns = 8;  ///< of a kind that a line lists

bool is_missing_to_pandas(std::string_view field) {
  static constexpr std::array<std::string_view, 9> marks{"", "nan", "-nan", "na", "n/a", "null", "#na", "#n/a", "<na>"};
  return std::ranges::find(marks, lower_case(field)) != marks.end();
}

bool is_missing_number(std::string_view field) {
  static constexpr std::array<std::string_view, 5> marks{"none", "nat", "?", "-", "."};
  return is_missing_to_pandas(field) || std::ranges::find(marks, lower_case(field)) != marks.end();
}

/// As 2024-01-31 or 31/01/2024 08:00.
bool is_date(std::string_view field) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !field.empty() && is_digit(field.front()) && std::ranges::all_of(field, [&](char c) {
    return is_digit(c) || std::string_view{"-/:. TZ+"}.find(c) != std::string_view::npos;
  }) && std::ranges::count_if(field, [](char c) { return c == '-' || c == '/' || c == ':'; }) >= 2;
}

/// As 1,5 or 1,234,567 or $ 20 or 5 %: digits, and what people put before, between and after them.
bool is_written_number(std::string_view field) {
  const std::string_view beside = ",.'+-$%_ ";
  // Of the signs of currencies, the bytes of euro, pound and yen, and of a narrow or hard space.
  const auto is_sign = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  return std::ranges::any_of(field, [](char c) { return c >= '0' && c <= '9'; }) &&
         std::ranges::all_of(
             field, [&](char c) { return (c >= '0' && c <= '9') || beside.find(c) != beside.npos || is_sign(c); });
}

/// Whether its only comma stands for a point.
bool has_decimal_comma(std::string_view field) {
  constexpr std::size_t of_thousands = 3;
  const std::size_t comma = field.find(',');
  return comma != field.npos && comma == field.rfind(',') && field.size() - comma - 1 != of_thousands &&
         field.find('.') == field.npos;
}

/// The wrong fields of a column.
struct ColumnFaults {
  std::int64_t missing = 0, dates = 0, words = 0, large = 0, written = 0;
  bool has_decimal_comma = false;
  std::set<std::string> different = {};  ///< words, up to one more than categories

  std::int64_t all() const { return missing + dates + words + large + written; }

  enum class Words { none, few, categories, names_of_rows };
  /// What the words are, of so many rows. Few among numbers are mistakes.
  Words kind_of_words(std::int64_t rows) const {
    if (words == 0) return Words::none;
    if (2 * words <= rows) return Words::few;
    const bool repeat_rarely =
        different.size() >= fewest_names && 2 * different.size() > static_cast<std::size_t>(words);
    return different.size() > most_categories || repeat_rarely ? Words::names_of_rows : Words::categories;
  }
};

class Faults {
 public:
  Faults(const CsvColumns& columns, DType dtype) : columns_{columns}, dtype_{dtype}, faults_(columns.names.size()) {}

  void look_at(const std::vector<std::string>& fields) {
    ++rows_;
    for (const std::size_t place : columns_.inputs) look_at(fields[place], faults_[place]);
    if (columns_.label && is_missing_label(fields[*columns_.label]))
      note_missing(fields[*columns_.label], faults_[*columns_.label]);
  }

  /// How many fields are wrong, by columns, and how to make numbers of them. Empty if a single one is.
  std::string text(const std::string& path, bool to_the_end) const {
    std::int64_t wrong = 0;
    for (const ColumnFaults& column : faults_) wrong += column.all();
    if (wrong < 2) return {};
    std::vector<std::string> kinds;
    const auto add = [&](std::string_view name, std::int64_t ColumnFaults::*count) {
      if (std::string columns = counted(count); !columns.empty())
        kinds.push_back(fmt::format("{} in {}", name, columns));
    };
    add("no number", &ColumnFaults::missing);
    add("dates", &ColumnFaults::dates);
    add("numbers with characters besides digits and a point", &ColumnFaults::written);
    add("words", &ColumnFaults::words);
    add("numbers that are not finite", &ColumnFaults::large);
    return fmt::format("; from here {} it has {}{}", to_the_end ? "on" : fmt::format("up to {} rows on", rows_),
                       fmt::join(kinds, ", "), conversion(path));
  }

 private:
  void look_at(const std::string& field, ColumnFaults& column) {
    double number = 0;
    if (parse_field(field, number)) {
      if (std::isnan(number))
        ++column.missing;
      else if (!is_finite(number, dtype_))
        ++column.large;
    } else if (is_missing_number(field)) {
      note_missing(field, column);
    } else if (is_date(field)) {
      ++column.dates;
    } else if (is_written_number(field)) {
      ++column.written;
      column.has_decimal_comma |= has_decimal_comma(field);
    } else {
      ++column.words;
      if (column.different.size() <= most_categories) column.different.insert(field);
    }
  }

  void note_missing(const std::string& field, ColumnFaults& column) {
    ++column.missing;
    if (!is_missing_to_pandas(field)) marks_.insert(python_string(field));
  }

  /// "column "a" (2 rows), "b" (1)".
  std::string counted(std::int64_t ColumnFaults::*count) const {
    std::vector<std::string> found;
    for (std::size_t place = 0; place < faults_.size() && found.size() <= most_columns; ++place) {
      const std::int64_t rows = faults_[place].*count;
      if (rows == 0) continue;
      if (found.size() == most_columns)
        found.emplace_back("…");
      else
        found.push_back(fmt::format("\"{}\" ({}{})", excerpt(columns_.names[place]), rows,
                                    !found.empty() ? ""
                                    : rows == 1    ? " row"
                                                   : " rows"));
    }
    return fmt::format("{}", fmt::join(found, ", "));
  }

  template <class Wanted>
  std::string names(Wanted&& wanted) const {
    std::vector<std::string> found;
    for (std::size_t place = 0; place < faults_.size(); ++place)
      if (wanted(faults_[place])) found.push_back(python_string(columns_.names[place]));
    return fmt::format("{}", fmt::join(found, ", "));
  }

  /// In Python with pandas; empty if it does not help.
  std::string conversion(const std::string& path) const {
    std::string steps;
    // The most specific first: a column that is dropped, or becomes several, has no missing numbers.
    using Words = ColumnFaults::Words;
    const auto are = [this](Words kind) {
      return [this, kind](const ColumnFaults& each) { return each.kind_of_words(rows_) == kind; };
    };
    if (const std::string dropped = names(are(Words::names_of_rows)); !dropped.empty())
      steps += fmt::format("; t = t.drop(columns=[{}])", dropped);
    if (const std::string categories = names(are(Words::categories)); !categories.empty())
      steps += fmt::format("; t = pandas.get_dummies(t, columns=[{}], dtype=int)", categories);
    const auto has_few_words = are(Words::few);
    for (std::size_t place = 0; place < faults_.size(); ++place) {
      const ColumnFaults& column = faults_[place];
      if (!has_few_words(column) && (column.written == 0 || column.words > 0)) continue;
      const std::string plain =
          column.written == 0
              ? ""
              : fmt::format(".astype(str).str.replace({})",
                            column.has_decimal_comma ? R"(",", ".")" : R"(r"[^0-9.eE+-]", "", regex=True)");
      steps += fmt::format("; t[{0}] = pandas.to_numeric(t[{0}]{1}{2})", python_string(columns_.names[place]), plain,
                           has_few_words(column) ? ", errors=\"coerce\"" : "");
    }
    const auto has_gaps = [&](const ColumnFaults& each) {
      return has_few_words(each) || (each.missing > 0 && each.words == 0);
    };
    if (const std::string gaps = names(has_gaps); !gaps.empty())
      steps += fmt::format("; t = t.dropna(subset=[{}])", gaps);
    for (std::size_t place = 0; place < faults_.size(); ++place)
      if (faults_[place].dates > 0 && faults_[place].words == 0)
        steps += fmt::format("; t[{0}] = pandas.to_datetime(t[{0}]).map(pandas.Timestamp.timestamp)",
                             python_string(columns_.names[place]));
    constexpr std::size_t longest = 2000;  // characters that somebody may want to read
    if (steps.empty() || steps.size() > longest) return {};
    return fmt::format(
        "; in Python: import pandas; t = pandas.read_csv({}, skipinitialspace=True{}){}; "
        "t.to_csv({}, index=False)",
        python_string(path), marks_.empty() ? "" : fmt::format(", na_values=[{}]", fmt::join(marks_, ", ")), steps,
        python_string(converted_name(path, "-numbers.csv")));
  }

  const CsvColumns& columns_;
  DType dtype_;
  std::vector<ColumnFaults> faults_;
  std::set<std::string> marks_;  ///< of missing numbers that pandas does not know, as strings of Python
  std::int64_t rows_ = 0;
};

}  // namespace

bool is_missing_label(std::string_view field) {
  // The first two as Python writes what is missing; "none" may be a class.
  return field == "None" || field == "NaT" || is_missing_to_pandas(field);
}

void fail_with_all_faults(CsvReader& reader, const CsvColumns& columns, std::vector<std::string> fields,
                          std::size_t place, std::string_view expected, DType dtype) {
  const std::int64_t line = reader.line();
  if (fields == columns.names)
    reader.fail_at(line,
                   "repeats the names of the columns; expected them once: of files that you join, keep the header of "
                   "the first");
  const std::string first = fmt::format("column \"{}\" is \"{}\"; expected {}", excerpt(columns.names[place]),
                                        excerpt(fields[place]), expected);
  Faults faults{columns, dtype};
  faults.look_at(fields);
  bool to_the_end = false;
  try {
    for (std::int64_t row = 1; row * std::ssize(columns.names) < most_fields; ++row) {
      if (to_the_end = !reader.next(); to_the_end) break;
      if (is_comment(reader, columns)) continue;
      split_record(reader, fields);
      if (fields.size() != columns.names.size()) break;
      faults.look_at(fields);
    }
  } catch (const ConfigError&) {  // what follows is no CSV, which is the next thing to tell
  }
  reader.fail_at(line, first + faults.text(reader.file().path().string(), to_the_end));
}

}  // namespace lockstep
