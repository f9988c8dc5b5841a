// Rows of numbers in CSV files.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/digest.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/shell_word.hpp"
#include "models/input/conversion.hpp"
#include "models/input/csv_faults.hpp"
#include "models/input/csv_header.hpp"
#include "models/input/csv_labels.hpp"
#include "models/input/csv_reader.hpp"
#include "models/input/csv_rows.hpp"
#include "models/input/failure.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"
#include "models/input/selected_rows.hpp"
#include "models/input/standard_scale.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Split = DataSchema::Split;
using Task = DataSchema::Task;
using Scaling = DataSchema::Scaling;

/// Which columns count the rows: an index that was saved with the table, which says nothing of a sample.
class RowCounters {
 public:
  explicit RowCounters(std::size_t columns) : firsts_(columns) {
    for (std::size_t column = 0; column < columns; ++column) left_.push_back(column);
  }

  void push(const std::vector<double>& numbers) {
    std::erase_if(left_, [&](std::size_t column) {
      if (rows_ == 0) firsts_[column] = numbers[column];
      return numbers[column] != firsts_[column] + static_cast<double>(rows_);
    });
    ++rows_;
  }

  /// None of a few rows, which numbers may be in the order of by chance.
  std::vector<std::size_t> found() const { return rows_ < fewest_rows ? std::vector<std::size_t>{} : left_; }

 private:
  static constexpr std::int64_t fewest_rows = 100;

  std::vector<double> firsts_;
  std::vector<std::size_t> left_;
  std::int64_t rows_ = 0;
};

/// For a record with one field more than there are columns, as some programs write them all.
std::string hint_for_more_fields(const CsvReader& reader, const CsvColumns& columns,
                                 const std::vector<std::string>& fields) {
  if (fields.size() != columns.names.size() + 1) return {};
  if (fields.back().empty()) return fmt::format(": {}", filtered(reader.file(), "sed 's/,$//'", "-cut.csv"));
  return "; R writes a name before each row unless row.names = FALSE";
}

/// Reads the records after the header, and their labels if `labels` are given.
LabelledRows read_records(CsvReader& reader, const CsvColumns& columns, CsvLabels* labels, DType dtype,
                          DataMemory& memory, Digest& digest) {
  const auto rows = std::make_shared<CsvRows>(reader.file().path(), columns);
  RowCounters counters{columns.inputs.size()};
  digest.update(fmt::format("{} columns:", columns.width()));
  std::vector<std::string> fields;
  std::vector<double> numbers(static_cast<std::size_t>(columns.width()));
  const auto fail = [&](std::size_t place, std::string_view expected) {
    fail_with_all_faults(reader, columns, fields, place, expected, dtype);
  };
  while (reader.next()) {
    if (is_comment(reader, columns)) continue;
    split_record(reader, fields);
    if (fields.size() != columns.names.size())
      reader.fail(fmt::format("has {} fields; expected {}, as the header has{}", fields.size(), columns.names.size(),
                              hint_for_more_fields(reader, columns, fields)));
    parse_numbers(columns, fields, numbers, [&](std::size_t place) { fail(place, "a number"); });
    const auto wrong = std::ranges::find_if(numbers, [&](double number) { return !is_finite(number, dtype); });
    if (wrong != numbers.end())
      fail(columns.inputs[static_cast<std::size_t>(wrong - numbers.begin())], finite_number_text(*wrong, dtype));
    if (labels && labels->lacks(fields[*columns.label])) fail(*columns.label, labels->expected());
    digest.update(std::as_bytes(std::span{numbers}));
    rows->push(reader, numbers, memory);
    counters.push(numbers);
    if (labels) labels->push(reader, fields[*columns.label]);
  }
  rows->finish(reader);
  if (rows->count() == 0) reader.file().fail("holds no rows after its header; expected 1 or more");
  LabelledRows file{.rows = rows};
  for (const std::size_t input : counters.found()) file.counters.push_back(columns.names[columns.inputs[input]]);
  if (labels) file.labels = labels->finish(reader);
  if (labels) file.numbers = labels->finish_numbers();
  digest.update(std::as_bytes(std::span{file.labels.begin(), file.labels.end()}))
      .update(std::as_bytes(std::span{file.numbers.begin(), file.numbers.end()}));
  return file;
}

/// The classes of the schema, or those that the file tells.
CsvLabels labels_for(const LabelledData::Options& options, const std::string& column) {
  if (task_of(options) == Task::regression) return CsvLabels::numbers(column, options.dtype);
  if (!options.schema) return CsvLabels::open(column, options.classes);
  return CsvLabels::known(column, options.schema->classes, model_has(*options.schema));
}

/// A file that is read: its header first.
struct OpenCsv {
  OpenCsv(const fs::path& path, const WantedColumns& wanted) : reader{path}, columns{read_header(reader, wanted)} {}

  CsvReader reader;
  CsvColumns columns;
};

DataSchema csv_schema(const CsvColumns& columns, std::string label, const LabelledData::Options& options) {
  DataSchema schema = options.schema.value_or(DataSchema{});
  schema.kind = "CSV";
  schema.sample = {columns.width()};
  schema.columns = columns.input_names();
  schema.label_column = std::move(label);
  schema.task = task_of(options);
  return schema;
}

/// Names are part of what the data say; numbers are there as labels.
void add_class_names(const DataSchema& schema, Digest& digest) {
  if (are_number_names(schema.classes)) return;
  for (const std::string& name : schema.classes) digest.update(fmt::format("class {}:{}", name.size(), name));
}

template <class Label>
FixedArray<Label> selected(const FixedArray<Label>& labels, const std::vector<std::int64_t>& rows) {
  std::vector<Label> found;
  for (const std::int64_t row : rows)
    if (!labels.empty()) found.push_back(labels[static_cast<std::size_t>(row)]);
  return found;
}

LabelledRows selected(const LabelledRows& file, std::vector<std::int64_t> rows) {
  LabelledRows found{
      .labels = selected(file.labels, rows), .numbers = selected(file.numbers, rows), .counters = file.counters};
  found.rows = std::make_shared<SelectedRows>(file.rows, std::move(rows));
  return found;
}

/// Finds out about a training set how it is scaled. ConfigError, which begins with `path`, if it cannot be, or if there
/// is nothing to regress on.
void find_scales(const fs::path& path, const LabelledRows& train, const LabelledData::Options& options,
                 DataSchema& schema) {
  const std::span<const double> numbers{train.numbers.begin(), train.numbers.end()};
  if (!numbers.empty() && are_equal_up_to_rounding(numbers))
    fail_file(path, fmt::format("column \"{}\" is {} in every row to train on; expected two numbers or more",
                                excerpt(schema.label_column), numbers.front()));
  if (options.scaling == Scaling::none) return;
  schema.scales = standard_scales(*train.rows, schema.columns, path);
  if (options.task == Task::regression) schema.label_scale = standard_scale(numbers, schema.label_column, path);
}

/// What is not in the rows: the same numbers, used in another way, are other data.
void add_task(const DataSchema& schema, Digest& digest) {
  const bool regresses = schema.task == Task::regression;
  if (regresses) digest.update("regression");
  if (schema.scales.empty()) return;
  digest.update("standard scale").update(std::as_bytes(std::span{schema.scales}));
  if (regresses) digest.update(std::as_bytes(std::span{&schema.label_scale, 1}));
}

/// How one file is split: as the schema says, or else as the options do.
void set_split(const LabelledData::Options& options, DataSchema& schema) {
  if (schema.split != Split::files) return;
  if (options.split == Split::files) throw InvalidArgument{"a split of one CSV file by files; expected hash or last"};
  schema.split = options.split;
  schema.test_fraction = options.test_fraction;
}

/// ConfigError if nothing says how columns are to be scaled.
void require_known_scales(const fs::path& path, const LabelledData::Options& options) {
  if (!options.schema && options.scaling == Scaling::standard)
    fail_file(path,
              "does not tell how columns were scaled in the training; expected its training set, or a model that "
              "says it, instead of --scale standard");
}

LabelledSets load_file(const fs::path& path, const LabelledData::Options& options) {
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_label_column(csv.reader, csv.columns, wanted.label);
  LabelledSets sets{.schema = csv_schema(csv.columns, wanted.label, options)};
  set_split(options, sets.schema);
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  CsvLabels labels = labels_for(options, wanted.label);
  DataMemory memory{options.memory_bytes};
  const LabelledRows file = read_records(csv.reader, csv.columns, &labels, options.dtype, memory, sets.digest);
  sets.schema.classes = labels.classes();
  SplitRows rows = split_rows(file.rows->count(), sets.schema.split, sets.schema.test_fraction);
  const std::size_t tested = rows.test.size();
  const bool finds_scales = !options.schema && options.scaling == Scaling::standard;
  if (tested == 0 || (rows.train.empty() && (trains(options) || finds_scales)))
    csv.reader.file().fail(fmt::format(
        "holds {} rows, of which {} are for the test; expected 1 or more to train on and to test (--test-fraction {})",
        file.rows->count(), tested, sets.schema.test_fraction));
  sets.digest.update(fmt::format("{} tested{}", tested, sets.schema.split == Split::hash ? " by hash" : ""));
  add_class_names(sets.schema, sets.digest);
  LabelledRows train = selected(file, std::move(rows.train));
  if (!options.schema) find_scales(path, train, options, sets.schema);
  add_task(sets.schema, sets.digest);
  sets.test = selected(file, std::move(rows.test));
  if (trains(options)) sets.train = std::move(train);
  return sets;
}

LabelledSets load_test_file(const fs::path& path, const LabelledData::Options& options) {
  require_known_classes(path, options);
  require_known_scales(path, options);
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_label_column(csv.reader, csv.columns, wanted.label);
  LabelledSets sets{.schema = csv_schema(csv.columns, wanted.label, options)};
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  CsvLabels labels = labels_for(options, wanted.label);
  DataMemory memory{options.memory_bytes};
  sets.test = read_records(csv.reader, csv.columns, &labels, options.dtype, memory, sets.digest);
  sets.schema.classes = labels.classes();
  add_class_names(sets.schema, sets.digest);
  add_task(sets.schema, sets.digest);
  return sets;
}

LabelledSets load_files(const fs::path& train, const fs::path& test, const LabelledData::Options& options) {
  WantedColumns wanted = WantedColumns::of(options);
  OpenCsv train_csv{train, wanted};
  require_label_column(train_csv.reader, train_csv.columns, wanted.label);
  if (wanted.inputs.empty())
    wanted = {wanted.label, train_csv.columns.input_names(), fmt::format("of {}", train.string())};
  OpenCsv test_csv{test, wanted};
  require_label_column(test_csv.reader, test_csv.columns, wanted.label);
  LabelledSets sets{.schema = csv_schema(train_csv.columns, wanted.label, options)};
  require_as_trained(train, options, {train_csv.columns.width()}, DataSchema::Numbers::floats);
  CsvLabels labels = labels_for(options, wanted.label);
  DataMemory memory{options.memory_bytes};
  sets.train = read_records(train_csv.reader, train_csv.columns, &labels, options.dtype, memory, sets.digest);
  sets.schema.classes = labels.classes();
  if (!options.schema) find_scales(train, sets.train, options, sets.schema);
  if (!options.schema && options.task == Task::classes)
    labels = CsvLabels::known(
        wanted.label, labels.classes(),
        options.classes ? fmt::format(" (--classes {})", *options.classes) : fmt::format(", as in {}", train.string()));
  sets.test = read_records(test_csv.reader, test_csv.columns, &labels, options.dtype, memory, sets.digest);
  add_class_names(sets.schema, sets.digest);
  add_task(sets.schema, sets.digest);
  return sets;
}

/// As find_file. Where there is a training set alone, it may be split.
fs::path find_test_file(const fs::path& folder, const std::optional<fs::path>& train) {
  try {
    return find_file(folder, "test.csv");
  } catch (const ConfigError& error) {
    if (!train) throw;
    throw ConfigError{fmt::format("{}, or --data {}, of whose rows a tenth are for the test", error.what(),
                                  shell_word(train->string()))};
  }
}

}  // namespace

LabelledSets load_csv_sets(const fs::path& path, const LabelledData::Options& options) {
  if (!fs::is_directory(path)) return load_file(path, options);
  const std::optional<fs::path> train = trains(options) ? std::optional{find_file(path, "train.csv")} : std::nullopt;
  const fs::path test = find_test_file(path, train);
  LabelledSets sets = train ? load_files(*train, test, options) : load_test_file(test, options);
  sets.schema.split = Split::files;
  sets.schema.test_fraction = 0;
  return sets;
}

UnlabelledRows load_csv_rows(const fs::path& path, const LabelledData::Options& options) {
  require_known_scales(path, options);
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  DataMemory memory{options.memory_bytes};
  UnlabelledRows rows{.schema = csv_schema(csv.columns, wanted.label, options)};
  rows.rows = read_records(csv.reader, csv.columns, nullptr, options.dtype, memory, rows.digest).rows;
  add_task(rows.schema, rows.digest);
  return rows;
}

}  // namespace lockstep
