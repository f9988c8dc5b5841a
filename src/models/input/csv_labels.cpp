#include "models/input/csv_labels.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"
#include "models/input/csv_faults.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"

namespace lockstep {
namespace {

/// A number from 0; empty if it is none.
std::optional<std::int64_t> class_number(const std::string& field) {
  std::int64_t number = -1;
  return parse_field(field, number) && number >= 0 ? std::optional{number} : std::nullopt;
}

/// Whether it is a measured number, which is no class.
bool is_fraction(const std::string& field) {
  double number;
  std::int64_t whole;
  return parse_field(field, number) && !parse_field(field, whole);
}

constexpr std::string_view any_class = "a class: a whole number from 0, or a name";
constexpr std::string_view or_regression = ", or --task regression, which predicts numbers";

/// What is expected in the place of a fraction.
std::string instead_of_fraction(const std::string& field) {
  double number = 0;
  (void)parse_field(field, number);
  const bool is_whole = std::isfinite(number) && std::trunc(number) == number;
  return fmt::format("{}{}{}", any_class, or_regression,
                     is_whole ? "; whole numbers are written without a point (astype(int) in pandas)" : "");
}

std::string range_text(std::int64_t classes, const std::string& origin) {
  return fmt::format("a class from 0 to {}{}", classes - 1, origin);
}

}  // namespace

CsvLabels CsvLabels::known(std::string column, std::vector<std::string> classes, std::string origin) {
  CsvLabels labels{std::move(column), std::move(classes), std::nullopt, std::move(origin)};
  labels.numbered_ = are_number_names(labels.classes_);
  for (const std::string& name : labels.classes_)
    if (!labels.numbered_) labels.seen_.emplace(name, Seen{static_cast<std::int32_t>(labels.seen_.size()), 0});
  return labels;
}

CsvLabels CsvLabels::open(std::string column, std::optional<std::int64_t> count) {
  return {std::move(column), {}, count, count ? fmt::format(" (--classes {})", *count) : ""};
}

CsvLabels CsvLabels::numbers(std::string column, DType dtype) {
  CsvLabels labels{std::move(column), {}, std::nullopt, ""};
  labels.number_type_ = dtype;
  return labels;
}

void CsvLabels::fail(const CsvReader& reader, std::int64_t line, const std::string& field,
                     const std::string& expected) const {
  reader.fail_at(line, fmt::format("column \"{}\" is \"{}\"; expected {}", excerpt(column_), excerpt(field), expected));
}

std::int32_t CsvLabels::class_of(const CsvReader& reader, const std::string& field) const {
  const std::int64_t count = std::ssize(classes_);
  if (numbered_) {
    const std::optional<std::int64_t> number = class_number(field);
    if (!number || *number >= count) fail(reader, reader.line(), field, expected());
    return static_cast<std::int32_t>(*number);
  }
  const auto found = seen_.find(as_utf8(field));
  if (found == seen_.end()) fail(reader, reader.line(), field, expected());
  return found->second.code;
}

std::int32_t CsvLabels::next_code(const CsvReader& reader, const std::string& field) const {
  if (is_fraction(field)) fail(reader, reader.line(), field, instead_of_fraction(field));
  if (std::ssize(seen_) == most_classes)
    fail(reader, reader.line(), field, fmt::format("one of at most {} classes{}", most_classes, or_regression));
  return static_cast<std::int32_t>(seen_.size());
}

double CsvLabels::number_of(const CsvReader& reader, const std::string& field) const {
  double number;
  if (!parse_field(field, number)) fail(reader, reader.line(), field, "a number");
  if (!is_finite(number, *number_type_))
    fail(reader, reader.line(), field, std::string{finite_number_text(number, *number_type_)});
  return number;
}

bool CsvLabels::lacks(const std::string& field) const {
  double number;
  return is_missing_label(field) && !(number_type_ ? parse_field(field, number) : seen_.contains(as_utf8(field)));
}

std::string CsvLabels::expected() const {
  if (number_type_) return "a number";
  if (is_open()) return std::string{any_class};
  if (numbered_) return range_text(std::ssize(classes_), origin_);
  return fmt::format("one of the classes {}{}", quoted(classes_), origin_);
}

void CsvLabels::push(const CsvReader& reader, const std::string& field) {
  if (number_type_) {
    numbers_.push_back(number_of(reader, field));
    return;
  }
  if (const auto found = seen_.find(field); found != seen_.end()) {
    codes_.push_back(found->second.code);
    return;
  }
  const std::int32_t code = is_open() ? next_code(reader, field) : class_of(reader, field);
  seen_.emplace(field, Seen{code, reader.line()});
  codes_.push_back(code);
}

std::vector<std::int32_t> CsvLabels::finish(const CsvReader& reader) {
  if (!is_open()) return std::exchange(codes_, {});
  const bool numbers =
      std::ranges::all_of(seen_, [](const auto& each) { return class_number(each.first).has_value(); });
  std::vector<std::int32_t> classes = numbers ? numbers_of_codes(reader) : names_of_codes(reader);
  if (std::ranges::count(classes, classes.front()) == std::ssize(classes))
    reader.file().fail(fmt::format("column \"{}\" is \"{}\" in every row; expected two classes or more",
                                   excerpt(column_), excerpt(classes_[static_cast<std::size_t>(classes.front())])));
  for (std::int32_t& code : codes_) code = classes[static_cast<std::size_t>(code)];
  return std::exchange(codes_, {});
}

std::vector<std::int32_t> CsvLabels::numbers_of_codes(const CsvReader& reader) {
  const std::int64_t below = count_.value_or(most_classes);
  std::vector<std::int32_t> numbers(seen_.size());
  const std::pair<const std::string, Seen>* wrong = nullptr;
  for (const auto& each : seen_) {
    const std::int64_t number = *class_number(each.first);
    if (number >= below && (!wrong || each.second.line < wrong->second.line)) wrong = &each;
    numbers[static_cast<std::size_t>(each.second.code)] = static_cast<std::int32_t>(number);
  }
  if (wrong)
    fail(reader, wrong->second.line, wrong->first,
         fmt::format("{}{}", range_text(below, origin_), count_ ? "" : or_regression));
  classes_ = number_names(count_.value_or(std::int64_t{std::ranges::max(numbers)} + 1));
  return numbers;
}

std::vector<std::int32_t> CsvLabels::names_of_codes(const CsvReader& reader) {
  std::vector<std::pair<std::string, std::int32_t>> names;
  for (const auto& [field, seen] : seen_) names.emplace_back(as_utf8(field), seen.code);
  std::ranges::sort(names);
  std::vector<std::int32_t> numbers(names.size());
  for (const auto& [name, code] : names) {
    if (classes_.empty() || classes_.back() != name) classes_.push_back(name);
    numbers[static_cast<std::size_t>(code)] = static_cast<std::int32_t>(classes_.size()) - 1;
  }
  if (count_ && *count_ != std::ssize(classes_))
    reader.file().fail(fmt::format("column \"{}\" has {} classes, {}; expected {}{}", excerpt(column_), classes_.size(),
                                   quoted(classes_), *count_, origin_));
  if (const std::optional<Twins> twins = find_twins(classes_))
    reader.file().fail(
        fmt::format("column \"{}\" has the classes {}, which differ only in blanks; expected names that "
                    "differ",
                    excerpt(column_), quoted({twins->first, twins->second})));
  return numbers;
}

}  // namespace lockstep
