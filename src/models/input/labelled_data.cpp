#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/labelled_data.hpp>

#include "core/base/lower_case.hpp"
#include "core/base/shell_word.hpp"
#include "models/input/conversion.hpp"
#include "models/input/csv_header.hpp"
#include "models/input/csv_reader.hpp"
#include "models/input/failure.hpp"
#include "models/input/file_kind.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/npy.hpp"
#include "models/input/row_samples.hpp"
#include "models/input/schema_names.hpp"
#include "models/input/token_file.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using Load = LabelledSets (*)(const fs::path&, const LabelledData::Options&);

/// A kind of folder, and the names of files that tell it.
struct FolderKind {
  std::string_view name;
  std::vector<std::string_view> files;
  Load load;
};

std::vector<FolderKind> folder_kinds() {
  return {{"IDX",
           {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
           load_idx_sets},
          {"CIFAR-10",
           {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
            "test_batch.bin"},
           load_cifar_10},
          {"CIFAR-100", {"train.bin", "test.bin"}, load_cifar_100},
          {"arrays of NumPy", {"x_train.npy", "y_train.npy", "x_test.npy", "y_test.npy"}, load_npy_sets},
          {"CSV", {"train.csv", "test.csv"}, load_csv_sets}};
}

constexpr std::string_view expected_data =
    "a folder of IDX files (train-images-idx3-ubyte and so on), of CIFAR-10 (data_batch_1.bin and so on), of CIFAR-100 "
    "(train.bin, test.bin), of arrays (x_train.npy, y_train.npy, x_test.npy, y_test.npy) or of CSV (train.csv, "
    "test.csv), or one CSV file with a header (--data)";

bool is_there(const fs::path& folder, std::string_view name) {
  std::error_code ignored;
  return fs::exists(folder / name, ignored) || fs::exists(folder / fmt::format("{}.gz", name), ignored);
}

/// The kinds of which a folder has files.
std::vector<FolderKind> kinds_in(const fs::path& folder) {
  std::vector<FolderKind> found;
  for (FolderKind& kind : folder_kinds())
    if (std::ranges::any_of(kind.files, [&](std::string_view name) { return is_there(folder, name); }))
      found.push_back(std::move(kind));
  return found;
}

bool has_csv_name(const fs::path& file) {
  const std::string name = file.filename().string();
  return std::ranges::any_of(std::array{".csv", ".csv.gz", ".tsv", ".tsv.gz"},
                             [&](const char* end) { return name.ends_with(end); });
}

/// The first image below a folder, as far as a look at a few files tells; empty if there is none.
fs::path find_image(const fs::path& folder) {
  constexpr std::array<std::string_view, 9> endings{".png",  ".jpg", ".jpeg", ".gif", ".bmp",
                                                    ".webp", ".tif", ".tiff", ".ppm"};
  constexpr int deepest = 3, most_files = 10'000;
  std::error_code error;
  int files = 0;
  for (fs::recursive_directory_iterator entry{folder, fs::directory_options::skip_permission_denied, error}, end;
       !error && entry != end && files < most_files; entry.increment(error), ++files) {
    if (entry.depth() == deepest) entry.disable_recursion_pending();
    if (std::ranges::find(endings, lower_case(entry->path().extension().string())) != endings.end())
      return entry->path();
  }
  return {};
}

/// The first table in a folder by its name; empty if there is none.
fs::path find_table(const fs::path& folder) {
  fs::path first;
  std::error_code error;
  for (fs::directory_iterator entry{folder, error}, end; !error && entry != end; entry.increment(error))
    if (has_csv_name(entry->path()) && (first.empty() || entry->path() < first)) first = entry->path();
  return first;
}

/// Images, perhaps beside a table, of which they may be the plots.
[[noreturn]] void refuse_images(const fs::path& folder, const fs::path& image) {
  const std::string image_name = image.lexically_relative(folder).string(),
                    conversion =
                        fmt::format("python3 apps/examples/images_to_arrays.py {} {}", shell_word(folder.string()),
                                    shell_word((folder / "").parent_path().string() + "-arrays"));
  const fs::path table = find_table(folder);
  if (table.empty())
    fail_file(folder, fmt::format("is a folder of images, such as {}; expected arrays: {}", image_name, conversion));
  fail_file(folder, fmt::format("has a table, {}, beside images, such as {}; expected --data {}, or arrays of the "
                                "images: {}",
                                table.filename().string(), image_name, shell_word(table.string()), conversion));
}

/// What to do with a folder that has no file of a data set: "; expected --data FOLDER/x.csv".
std::string hint_for_folder(const fs::path& folder) {
  for (const FolderKind& kind : folder_kinds())
    for (const std::string_view name : kind.files)
      if (const std::string renaming = renaming_of(folder, name); !renaming.empty())
        return fmt::format("; {} makes one of {}", renaming, kind.name);
  constexpr int most_files = 100;
  std::error_code error;
  int files = 0;
  for (fs::directory_iterator entry{folder, error}, end; !error && entry != end && files < most_files;
       entry.increment(error), ++files) {
    if (has_csv_name(entry->path())) return fmt::format("; expected --data {}", shell_word(entry->path().string()));
    if (fs::is_regular_file(entry->path(), error))
      if (const std::string hint = hint_for_kind(entry->path()); !hint.empty())
        return fmt::format("; it has {}{}", entry->path().filename().string(), hint);
  }
  return {};
}

Load recognise_folder(const fs::path& folder) {
  const std::vector<FolderKind> kinds = kinds_in(folder);
  if (kinds.size() == 1) return kinds.front().load;
  if (kinds.size() > 1)
    fail_file(folder,
              fmt::format("has files of {} and of {}; expected those of one data set", kinds[0].name, kinds[1].name));
  std::error_code ignored;
  if (const fs::path image = find_image(folder); !image.empty()) refuse_images(folder, image);
  if (fs::is_regular_file(folder / "data_batch_1", ignored) || fs::is_regular_file(folder / "train", ignored))
    fail_file(folder,
              "is CIFAR in the version for Python; expected the binary version, with data_batch_1.bin or train.bin");
  for (const char* const inner : {"cifar-10-batches-bin", "cifar-100-binary"})
    if (is_there(folder, inner))
      fail_file(folder, fmt::format("has a folder {0}; expected --data {1}", inner, (folder / inner).string()));
  fail_file(folder, fmt::format("is no data set; expected {}{}", expected_data, hint_for_folder(folder)));
}

/// Whether the header of a file has this column, between commas or what may be in their place.
bool has_column(const fs::path& file, const WantedColumns& wanted) {
  for (const char separator : {',', '\t', ';', '|'}) try {
      CsvReader reader{file};
      std::vector<std::string> names;
      if (read_names(reader, wanted, names, separator) && std::ranges::find(names, wanted.label) != names.end())
        return true;
    } catch (const ConfigError&) {
      return false;
    }
  return false;
}

Load recognise(const fs::path& path, const LabelledData::Options& options) {
  if (path.empty()) throw ConfigError{fmt::format("--data is empty; expected {}", expected_data)};
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (error) fail_file(path, fmt::format("cannot be read: {}", error.message()));
  if (!there) fail_file(path, fmt::format("does not exist; expected {}", expected_data));
  if (fs::is_directory(path, error)) return recognise_folder(path);
  if (fs::is_regular_file(path, error) && (has_csv_name(path) || has_column(path, WantedColumns::of(options))))
    return load_csv_sets;
  if (const std::optional<FileKind> kind = kind_of_file(path); kind && !kind->as_rows.empty())
    fail_file(path, fmt::format("is {}, not a data set: {}", kind->name, kind->as_rows));
  fail_file(path, fmt::format("is not a data set; expected {}{}", expected_data, hint_for_file(path)));
}

/// Whether a file may be CIFAR-100's: files of tokens may have its name.
bool holds_records(const fs::path& file) {
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(file, error);
  if (error || bytes == 0 || bytes % 3074 != 0) return false;
  try {
    std::vector<std::uint8_t> first(4);
    return FileBytes{file}.read(first) == 4 && !begins_token_file(first);
  } catch (const ConfigError&) {
    return false;
  }
}

/// "3 classes", with their names if they have some, or "a regression of "price"".
std::string labels_text(const DataSchema& schema) {
  if (schema.task == DataSchema::Task::regression)
    return fmt::format("a regression of {}", quoted({schema.label_column}));
  return fmt::format("{} classes{}", schema.classes.size(),
                     are_number_names(schema.classes) ? "" : fmt::format(" ({})", quoted(schema.classes)));
}

/// ", 1 of them without a sample to train on: "0"" where labels begin at 1; empty if each class has some.
std::string unseen_text(const LabelledParts& data) {
  if (!data.train.rows || data.train.labels.empty()) return {};
  std::vector<bool> seen(data.schema.classes.size());
  for (const std::int32_t label : data.train.labels) seen[static_cast<std::size_t>(label)] = true;
  std::vector<std::string> unseen;
  for (std::size_t each = 0; each < seen.size(); ++each)
    if (!seen[each]) unseen.push_back(data.schema.classes[each]);
  if (unseen.empty()) return {};
  // Measured numbers that happen to be whole leave most out.
  const bool may_be_measured = data.schema.kind == "CSV" && 2 * unseen.size() > seen.size();
  return fmt::format(", {} of them without a sample to train on: {}{}", unseen.size(), quoted(unseen),
                     may_be_measured ? " (--task regression predicts labels as numbers)" : "");
}

/// "; column "id" counts the rows", which a model may take for a property of theirs.
std::string counters_text(const std::vector<std::string>& columns) {
  if (columns.empty()) return {};
  return fmt::format("; column{} {} count{} the rows and may say nothing of them", columns.size() == 1 ? "" : "s",
                     quoted(columns), columns.size() == 1 ? "s" : "");
}

/// "CSV: 23 rows of 1 number to train on and 2 to test, 3 classes".
std::string text_of(const LabelledParts& data) {
  const auto count = [](const LabelledRows& rows) { return rows.rows ? rows.rows->count() : 0; };
  const auto in_memory = [](const LabelledRows& rows) { return !rows.rows || rows.rows->in_memory(); };
  const DataSchema& schema = data.schema;
  const std::string samples = samples_text(schema.sample);
  const std::string parts = !data.test.rows    ? fmt::format("{} {}", count(data.train), samples)
                            : !data.train.rows ? fmt::format("{} {} to test", count(data.test), samples)
                                               : fmt::format("{} {} to train on and {} to test", count(data.train),
                                                             samples, count(data.test));
  return fmt::format(
      "{}: {}, {}{}{}{}{}", schema.kind, parts, labels_text(schema), unseen_text(data),
      schema.scales.empty() ? "" : ", scaled by the means and deviations of the training set",
      in_memory(data.train) && in_memory(data.test) ? "" : ", read from the files batch by batch (--data-memory)",
      counters_text(data.train.rows ? data.train.counters : data.test.counters));
}

/// Of options that only CSV takes, the one that `options` or their schema ask for; empty if there is none.
std::string option_of_csv(const LabelledData::Options& options) {
  if (task_of(options) == DataSchema::Task::regression) return "--task regression";
  return scaling_of(options) == DataSchema::Scaling::standard ? "--scale standard" : "";
}

void require_csv(const fs::path& path, const LabelledData::Options& options) {
  const std::string option = option_of_csv(options);
  if (option.empty()) return;
  const std::string arrays = python_string((path / "x_train.npy").string()),
                    labels = python_string((path / "y_train.npy").string()),
                    table = python_string(converted_name(path / "", "table.csv"));
  std::error_code ignored;
  fail_file(path,
            fmt::format("is no CSV; expected CSV, with names of columns, for {}{}{}", option,
                        options.schema ? ", with which the model was trained" : "",
                        !fs::exists(path / "x_train.npy", ignored)
                            ? ""
                            : fmt::format("; in Python: import numpy, pandas; t = pandas.DataFrame(numpy.load({})); "
                                          "t[\"label\"] = numpy.load({}); t.to_csv({}, index=False)",
                                          arrays, labels, table)));
}

void require_options(const LabelledData::Options& options) {
  if (options.classes && (*options.classes < 1 || *options.classes > most_classes))
    throw ConfigError{fmt::format("--classes is {}; expected 1 to {}", *options.classes, most_classes)};
  if (!(options.test_fraction > 0 && options.test_fraction < 1))
    throw ConfigError{fmt::format("--test-fraction is {}; expected a number between 0 and 1", options.test_fraction)};
  if (options.classes && task_of(options) == DataSchema::Task::regression)
    throw ConfigError{fmt::format("--classes is {}; a regression has none", *options.classes)};
  if (options.schema && options.classes && *options.classes != std::ssize(options.schema->classes))
    throw ConfigError{
        fmt::format("--classes is {}; the model has {}", *options.classes, options.schema->classes.size())};
}

}  // namespace

LabelledSets load_labelled_sets(const fs::path& path, const LabelledData::Options& options) {
  require_options(options);
  const Load load = recognise(path, options);
  if (load != load_csv_sets) require_csv(path, options);
  return load(path, options);
}

std::vector<fs::path> data_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<fs::path> files{path / "batches.meta.txt", path / "fine_label_names.txt"};
  for (const FolderKind& kind : folder_kinds())
    for (const std::string_view name : kind.files)
      files.insert(files.end(), {path / name, path / fmt::format("{}.gz", name)});
  return files;
}

namespace {

/// Whether these bytes begin a text whose first line has columns.
bool begins_table(std::span<const std::uint8_t> first) {
  const auto line = first.first(static_cast<std::size_t>(std::ranges::find(first, '\n') - first.begin()));
  return is_text(first) && std::ranges::find(line, ',') != line.end();
}

}  // namespace

LabelledSets load_unlabelled_sets(const fs::path& file, const LabelledData::Options& options) {
  require_options(options);
  constexpr std::string_view expected =
      "an IDX file of images, an .npy array, or CSV with a header, plain or packed (gzip)";
  std::error_code error;
  if (!fs::exists(file, error) && !error) fail_file(file, fmt::format("does not exist; expected {}", expected));
  std::vector<std::uint8_t> first(512);
  first.resize(FileBytes{file}.read(first));
  const bool is_table = has_csv_name(file) || begins_table(first);
  if (begins_npy_file(first) || !is_table) require_csv(file, options);
  UnlabelledRows rows = begins_npy_file(first) ? load_npy_rows(file, options)
                        : is_table             ? load_csv_rows(file, options)
                                               : load_idx_rows(file, options);
  if (!options.schema && rows.schema.task == DataSchema::Task::classes)
    rows.schema.classes = number_names(options.classes.value_or(10));
  return {.schema = std::move(rows.schema), .train = {.rows = std::move(rows.rows)}, .digest = std::move(rows.digest)};
}

LabelledData labelled_data_of(LabelledParts parts, DType dtype) {
  std::string text = text_of(parts);
  return {.text = std::move(text),
          .sample = parts.schema.sample,
          .classes = std::ssize(parts.schema.classes),
          .train = samples_of(std::move(parts.train), parts.schema, dtype),
          .test = samples_of(std::move(parts.test), parts.schema, dtype),
          .digest = parts.digest,
          .schema = std::move(parts.schema)};
}

LabelledParts parts_of(LabelledSets sets) {
  return {std::move(sets.schema), std::move(sets.train), std::move(sets.test), sets.digest.value()};
}

LabelledData LabelledData::load(const fs::path& path, const LabelledData::Options& options) {
  return labelled_data_of(parts_of(load_labelled_sets(path, options)), options.dtype);
}

LabelledData LabelledData::load_unlabelled(const fs::path& file, const LabelledData::Options& options) {
  return labelled_data_of(parts_of(load_unlabelled_sets(file, options)), options.dtype);
}

bool is_data_name(std::string_view name) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  return std::ranges::any_of(
      folder_kinds(), [&](const FolderKind& kind) { return std::ranges::find(kind.files, name) != kind.files.end(); });
}

bool is_folder_of_images(const fs::path& folder) {
  for (const FolderKind& kind : kinds_in(folder)) {
    if (kind.load == load_csv_sets) continue;  // a text too
    if (kind.load != load_cifar_100 || holds_records(folder / "train.bin")) return true;
  }
  return false;
}

}  // namespace lockstep
