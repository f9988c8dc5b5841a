// Rows of numbers in CSV files.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>

#include "input/csv_reader.hpp"
#include "input/labelled_sets.hpp"
#include "input/one_line.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t parts_of_rows = 10;  // of one file, of which the last is the test set

/// The header of a file.
struct Columns {
  std::vector<std::string> names;
  std::optional<std::size_t> label;

  std::int64_t width() const { return std::ssize(names) - (label ? 1 : 0); }
};

bool is_finite(double number, DType dtype) {
  return dtype == DType::f64 ? std::isfinite(number) : std::isfinite(static_cast<float>(number));
}

/// The numbers of a file: all of them, or the places of its records.
class CsvRows final : public NumberRows {
 public:
  CsvRows(fs::path path, Columns columns) : path_{std::move(path)}, columns_{std::move(columns)} {}

  /// Takes the record that `reader` has read, which holds `numbers`.
  void push(const CsvReader& reader, const std::vector<double>& numbers, DataMemory& memory);
  /// Call it after the last one.
  void finish(const CsvReader& reader);

  bool in_memory() const override { return keeps_; }
  std::int64_t count() const override { return count_; }
  std::int64_t width() const override { return columns_.width(); }
  void read(std::int64_t row, std::span<float> to) const override { copy(row, to); }
  void read(std::int64_t row, std::span<double> to) const override { copy(row, to); }

 private:
  template <class Real>
  void copy(std::int64_t row, std::span<Real> to) const;
  std::vector<double> read_record(std::int64_t row) const;

  fs::path path_;
  Columns columns_;
  std::int64_t count_ = 0;
  bool keeps_ = true;
  std::vector<double> numbers_;
  std::vector<std::uint64_t> begins_;  ///< of the records, and the end of the last
  Descriptor file_{};                  ///< if the numbers are not kept
};

void CsvRows::push(const CsvReader& reader, const std::vector<double>& numbers, DataMemory& memory) {
  ++count_;
  begins_.push_back(reader.offset());
  if (!keeps_) return;
  if (memory.take(numbers.size() * sizeof(double))) {
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    return;
  }
  if (reader.file().packed()) memory.refuse_packed(reader.file());
  keeps_ = false;
  memory.left_bytes += numbers_.size() * sizeof(double);
  numbers_ = {};
  file_ = reader.file().duplicate();
}

void CsvRows::finish(const CsvReader& reader) {
  begins_.push_back(reader.end());
  if (keeps_) begins_ = {};
}

/// The fields other than the label, as numbers. Calls `wrong(column, field)` for the first that is none.
template <class Wrong>
void parse_numbers(const Columns& columns, const std::vector<std::string>& fields, std::vector<double>& numbers,
                   Wrong&& wrong) {
  std::size_t place = 0;
  for (std::size_t column = 0; column < fields.size(); ++column) {
    if (column == columns.label) continue;
    if (!parse_field(fields[column], numbers[place++])) wrong(column);
  }
}

std::vector<double> CsvRows::read_record(std::int64_t row) const {
  const std::uint64_t begin = begins_[static_cast<std::size_t>(row)], end = begins_[static_cast<std::size_t>(row) + 1];
  std::vector<std::uint8_t> bytes(end - begin);
  read_again(file_, path_, begin, bytes);
  std::string_view record{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  while (record.ends_with('\n') || record.ends_with('\r')) record.remove_suffix(1);
  const auto changed = [&] {
    throw ConfigError{
        fmt::format("{}: has changed while it was in use: the record at byte {} is not the one that was "
                    "checked",
                    path_.string(), begin)};
  };
  std::vector<std::string> fields;
  if (!split_fields(record, fields) || fields.size() != columns_.names.size()) changed();
  std::vector<double> numbers(static_cast<std::size_t>(width()));
  parse_numbers(columns_, fields, numbers, [&](std::size_t) { changed(); });
  return numbers;
}

template <class Real>
void CsvRows::copy(std::int64_t row, std::span<Real> to) const {
  if (!keeps_) {
    std::ranges::transform(read_record(row), to.begin(), [](double number) { return static_cast<Real>(number); });
    return;
  }
  const auto begin = numbers_.begin() + row * width();
  std::transform(begin, begin + width(), to.begin(), [](double number) { return static_cast<Real>(number); });
}

std::string quoted(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::vector<std::string> shown;
  for (const std::string& name : names) {
    if (shown.size() == most) {
      shown.emplace_back("…");
      break;
    }
    shown.push_back(fmt::format("\"{}\"", one_line(name)));
  }
  return fmt::format("{}", fmt::join(shown, ", "));
}

void split(const CsvReader& reader, std::vector<std::string>& fields) {
  if (!split_fields(reader.record(), fields)) reader.fail("a quoted field is followed by something other than a comma");
}

Columns read_header(CsvReader& reader, const std::string& label) {
  if (!reader.next()) reader.file().fail("is empty; expected a header, with the names of its columns");
  Columns columns;
  split(reader, columns.names);
  for (const char separator : {';', '\t'})
    if (columns.names.size() == 1 && columns.names.front().find(separator) != std::string::npos)
      reader.fail(fmt::format("its columns are separated by {}; expected commas", separator == ';' ? "';'" : "tabs"));
  const auto found = std::ranges::find(columns.names, label);
  if (found != columns.names.end()) columns.label = static_cast<std::size_t>(found - columns.names.begin());
  if (std::ranges::count(columns.names, label) > 1)
    reader.fail(fmt::format("has several columns \"{}\"; expected one", one_line(label)));
  if (columns.width() < 1) reader.fail("has no column besides the label; expected one or more of numbers");
  return columns;
}

void require_label_column(const CsvReader& reader, const Columns& columns, const std::string& label) {
  if (!columns.label)
    reader.fail(
        fmt::format("has no column \"{}\" among its columns {}; expected one with the class of each row "
                    "(--label-column)",
                    one_line(label), quoted(columns.names)));
}

struct CsvFile {
  std::shared_ptr<CsvRows> rows;
  std::vector<std::int32_t> labels;  ///< none where there is no rule
};

std::int64_t read_label(const CsvReader& reader, const Columns& columns, const std::string& field,
                        const LabelRule& rule) {
  std::int64_t label = -1;
  if (!parse_field(field, label) || label < 0 || label >= rule.classes)
    reader.fail(fmt::format("column \"{}\" is \"{}\"; expected a class from 0 to {}{}",
                            one_line(columns.names[*columns.label]), one_line(field), rule.classes - 1, rule.origin));
  return label;
}

/// Reads the records after the header.
CsvFile read_records(CsvReader& reader, const Columns& columns, const LabelRule* rule, DType dtype, DataMemory& memory,
                     Digest& digest) {
  CsvFile file{std::make_shared<CsvRows>(reader.file().path(), columns), {}};
  digest.update(fmt::format("{} columns:", columns.width()));
  std::vector<std::string> fields;
  std::vector<double> numbers(static_cast<std::size_t>(columns.width()));
  const auto fail = [&](std::size_t column, std::string_view expected) {
    reader.fail(fmt::format("column \"{}\" is \"{}\"; expected {}", one_line(columns.names[column]),
                            one_line(fields[column]), expected));
  };
  while (reader.next()) {
    split(reader, fields);
    if (fields.size() != columns.names.size())
      reader.fail(fmt::format("has {} fields; expected {}, as the header has", fields.size(), columns.names.size()));
    parse_numbers(columns, fields, numbers, [&](std::size_t column) { fail(column, "a number"); });
    const auto wrong = std::ranges::find_if(numbers, [&](double number) { return !is_finite(number, dtype); });
    if (wrong != numbers.end()) {
      auto column = static_cast<std::size_t>(wrong - numbers.begin());
      if (columns.label && column >= *columns.label) ++column;
      fail(column, dtype == DType::f64 ? "a finite number" : "a finite number of 32 bits");
    }
    digest.update(std::as_bytes(std::span{numbers}));
    file.rows->push(reader, numbers, memory);
    if (!rule) continue;
    const std::int64_t label = read_label(reader, columns, fields[*columns.label], *rule);
    file.labels.push_back(static_cast<std::int32_t>(label));
  }
  file.rows->finish(reader);
  digest.update(std::as_bytes(std::span{file.labels}));
  if (file.rows->count() == 0) reader.file().fail("holds no rows after its header; expected 1 or more");
  return file;
}

LabelledRows whole(CsvFile file) {
  const std::int64_t count = file.rows->count();
  return {std::move(file.rows), {0, count}, std::move(file.labels)};
}

LabelledSets load_file(const fs::path& path, const LabelledOptions& options) {
  CsvReader reader{path};
  const Columns columns = read_header(reader, options.label_column);
  require_label_column(reader, columns, options.label_column);
  LabelledSets sets{.kind = "CSV", .sample = {columns.width()}};
  const LabelRule rule = LabelRule::of(options, most_classes, "");
  DataMemory memory{options.memory_bytes};
  CsvFile file = read_records(reader, columns, &rule, options.dtype, memory, sets.digest);
  sets.classes = options.classes.value_or(std::int64_t{std::ranges::max(file.labels)} + 1);
  const std::int64_t count = file.rows->count(), tested = count / parts_of_rows;
  if (tested == 0)
    reader.file().fail(
        fmt::format("holds {} rows; expected at least {}, so that its last tenth is a test set", count, parts_of_rows));
  sets.digest.update(fmt::format("{} tested", tested));
  const auto boundary = file.labels.begin() + (count - tested);
  sets.test = {file.rows, {count - tested, count}, {boundary, file.labels.end()}};
  file.labels.erase(boundary, file.labels.end());
  sets.train = {std::move(file.rows), {0, count - tested}, std::move(file.labels)};
  return sets;
}

}  // namespace

LabelledSets load_csv_sets(const fs::path& path, const LabelledOptions& options) {
  if (!fs::is_directory(path)) return load_file(path, options);
  const fs::path train = find_file(path, "train.csv"), test = find_file(path, "test.csv");
  CsvReader train_reader{train}, test_reader{test};
  const Columns columns = read_header(train_reader, options.label_column);
  require_label_column(train_reader, columns, options.label_column);
  if (const Columns others = read_header(test_reader, options.label_column); others.names != columns.names)
    test_reader.fail(fmt::format("its columns are {}; expected {}, as in {}", quoted(others.names),
                                 quoted(columns.names), train.string()));
  LabelledSets sets{.kind = "CSV", .sample = {columns.width()}};
  LabelRule rule = LabelRule::of(options, most_classes, "");
  DataMemory memory{options.memory_bytes};
  sets.train = whole(read_records(train_reader, columns, &rule, options.dtype, memory, sets.digest));
  if (!options.classes)
    rule = {std::int64_t{std::ranges::max(sets.train.labels)} + 1, fmt::format(", as in {}", train.string())};
  sets.classes = rule.classes;
  sets.test = whole(read_records(test_reader, columns, &rule, options.dtype, memory, sets.digest));
  return sets;
}

UnlabelledRows load_csv_rows(const fs::path& path, const LabelledOptions& options) {
  CsvReader reader{path};
  const Columns columns = read_header(reader, options.label_column);
  DataMemory memory{options.memory_bytes};
  Digest digest;
  CsvFile file = read_records(reader, columns, nullptr, options.dtype, memory, digest);
  return {std::move(file.rows), {columns.width()}, std::move(digest)};
}

}  // namespace lockstep
