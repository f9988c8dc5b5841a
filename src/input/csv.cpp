// Rows of numbers in CSV files.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/excerpt.hpp"
#include "input/csv_header.hpp"
#include "input/csv_labels.hpp"
#include "input/csv_reader.hpp"
#include "input/csv_rows.hpp"
#include "input/labelled_sets.hpp"
#include "input/schema_names.hpp"
#include "input/selected_rows.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Split = DataSchema::Split;

bool is_finite(double number, DType dtype) {
  return dtype == DType::f64 ? std::isfinite(number) : std::isfinite(static_cast<float>(number));
}

struct CsvFile {
  std::shared_ptr<CsvRows> rows;
  std::vector<std::int32_t> labels;  ///< none where they are not read
};

/// Reads the records after the header, and their labels if `labels` are given.
CsvFile read_records(CsvReader& reader, const CsvColumns& columns, CsvLabels* labels, DType dtype, DataMemory& memory,
                     Digest& digest) {
  CsvFile file{std::make_shared<CsvRows>(reader.file().path(), columns), {}};
  digest.update(fmt::format("{} columns:", columns.width()));
  std::vector<std::string> fields;
  std::vector<double> numbers(static_cast<std::size_t>(columns.width()));
  const auto fail = [&](std::size_t place, std::string_view expected) {
    reader.fail(fmt::format("column \"{}\" is \"{}\"; expected {}", excerpt(columns.names[place]),
                            excerpt(fields[place]), expected));
  };
  while (reader.next()) {
    split_record(reader, fields);
    if (fields.size() != columns.names.size())
      reader.fail(fmt::format("has {} fields; expected {}, as the header has", fields.size(), columns.names.size()));
    parse_numbers(columns, fields, numbers, [&](std::size_t place) { fail(place, "a number"); });
    const auto wrong = std::ranges::find_if(numbers, [&](double number) { return !is_finite(number, dtype); });
    if (wrong != numbers.end())
      fail(columns.inputs[static_cast<std::size_t>(wrong - numbers.begin())],
           dtype == DType::f64 ? "a finite number" : "a finite number of 32 bits");
    digest.update(std::as_bytes(std::span{numbers}));
    file.rows->push(reader, numbers, memory);
    if (labels) labels->push(reader, fields[*columns.label]);
  }
  file.rows->finish(reader);
  if (file.rows->count() == 0) reader.file().fail("holds no rows after its header; expected 1 or more");
  if (labels) file.labels = labels->finish(reader);
  digest.update(std::as_bytes(std::span{file.labels}));
  return file;
}

/// The classes of the schema, or those that the file tells.
CsvLabels labels_for(const LabelledOptions& options, const std::string& column) {
  if (!options.schema) return CsvLabels::open(column, options.classes);
  return CsvLabels::known(column, options.schema->classes, model_has(*options.schema));
}

/// A file that is read: its header first.
struct OpenCsv {
  OpenCsv(const fs::path& path, const WantedColumns& wanted) : reader{path}, columns{read_header(reader, wanted)} {}

  CsvReader reader;
  CsvColumns columns;
};

DataSchema csv_schema(const CsvColumns& columns, std::string label, const LabelledOptions& options) {
  DataSchema schema = options.schema.value_or(DataSchema{});
  schema.kind = "CSV";
  schema.sample = {columns.width()};
  schema.columns = columns.input_names();
  schema.label_column = std::move(label);
  return schema;
}

/// Names are part of what the data say; numbers are there as labels.
void add_class_names(const DataSchema& schema, Digest& digest) {
  if (are_number_names(schema.classes)) return;
  for (const std::string& name : schema.classes) digest.update(fmt::format("class {}:{}", name.size(), name));
}

LabelledRows selected(const CsvFile& file, std::vector<std::int64_t> rows) {
  std::vector<std::int32_t> labels;
  for (const std::int64_t row : rows) labels.push_back(file.labels[static_cast<std::size_t>(row)]);
  return {std::make_shared<SelectedRows>(file.rows, std::move(rows)), std::move(labels)};
}

/// How one file is split: as the schema says, or else as the options do.
void set_split(const LabelledOptions& options, DataSchema& schema) {
  if (schema.split != Split::files) return;
  schema.split = options.split;
  schema.test_fraction = options.test_fraction;
}

LabelledSets load_file(const fs::path& path, const LabelledOptions& options) {
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_label_column(csv.reader, csv.columns, wanted.label);
  LabelledSets sets{.schema = csv_schema(csv.columns, wanted.label, options)};
  set_split(options, sets.schema);
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  CsvLabels labels = labels_for(options, wanted.label);
  DataMemory memory{options.memory_bytes};
  const CsvFile file = read_records(csv.reader, csv.columns, &labels, options.dtype, memory, sets.digest);
  sets.schema.classes = labels.classes();
  SplitRows rows = split_rows(file.rows->count(), sets.schema.split, sets.schema.test_fraction);
  const std::size_t tested = rows.test.size();
  if (tested == 0 || (rows.train.empty() && trains(options)))
    csv.reader.file().fail(fmt::format(
        "holds {} rows, of which {} are for the test; expected 1 or more to train on and to test (--test-fraction {})",
        file.rows->count(), tested, sets.schema.test_fraction));
  sets.digest.update(fmt::format("{} tested{}", tested, sets.schema.split == Split::hash ? " by hash" : ""));
  add_class_names(sets.schema, sets.digest);
  sets.test = selected(file, std::move(rows.test));
  if (trains(options)) sets.train = selected(file, std::move(rows.train));
  return sets;
}

LabelledRows whole(CsvFile file) {
  return {std::move(file.rows), std::move(file.labels)};
}

LabelledSets load_test_file(const fs::path& path, const LabelledOptions& options) {
  require_known_classes(path, options);
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_label_column(csv.reader, csv.columns, wanted.label);
  LabelledSets sets{.schema = csv_schema(csv.columns, wanted.label, options)};
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  CsvLabels labels = labels_for(options, wanted.label);
  DataMemory memory{options.memory_bytes};
  sets.test = whole(read_records(csv.reader, csv.columns, &labels, options.dtype, memory, sets.digest));
  sets.schema.classes = labels.classes();
  add_class_names(sets.schema, sets.digest);
  return sets;
}

LabelledSets load_files(const fs::path& train, const fs::path& test, const LabelledOptions& options) {
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
  sets.train = whole(read_records(train_csv.reader, train_csv.columns, &labels, options.dtype, memory, sets.digest));
  sets.schema.classes = labels.classes();
  if (!options.schema)
    labels = CsvLabels::known(
        wanted.label, labels.classes(),
        options.classes ? fmt::format(" (--classes {})", *options.classes) : fmt::format(", as in {}", train.string()));
  sets.test = whole(read_records(test_csv.reader, test_csv.columns, &labels, options.dtype, memory, sets.digest));
  add_class_names(sets.schema, sets.digest);
  return sets;
}

}  // namespace

LabelledSets load_csv_sets(const fs::path& path, const LabelledOptions& options) {
  if (!fs::is_directory(path)) return load_file(path, options);
  const std::optional<fs::path> train = trains(options) ? std::optional{find_file(path, "train.csv")} : std::nullopt;
  const fs::path test = find_file(path, "test.csv");
  LabelledSets sets = train ? load_files(*train, test, options) : load_test_file(test, options);
  sets.schema.split = Split::files;
  sets.schema.test_fraction = 0;
  return sets;
}

UnlabelledRows load_csv_rows(const fs::path& path, const LabelledOptions& options) {
  const WantedColumns wanted = WantedColumns::of(options);
  OpenCsv csv{path, wanted};
  require_as_trained(path, options, {csv.columns.width()}, DataSchema::Numbers::floats);
  DataMemory memory{options.memory_bytes};
  UnlabelledRows rows{.schema = csv_schema(csv.columns, wanted.label, options)};
  rows.rows = read_records(csv.reader, csv.columns, nullptr, options.dtype, memory, rows.digest).rows;
  return rows;
}

}  // namespace lockstep
