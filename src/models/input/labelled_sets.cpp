#include "models/input/labelled_sets.hpp"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/lower_case.hpp"
#include "core/base/shell_word.hpp"
#include "models/input/failure.hpp"

namespace lockstep {
namespace {

/// Images of one channel have two extents or three.
Shape without_channel(Shape sample) {
  if (sample.size() == 3 && sample.back() == 1) sample.pop_back();
  return sample;
}

std::string_view numbers_text(DataSchema::Numbers numbers) {
  return numbers == DataSchema::Numbers::bytes ? "8-bit numbers, scaled to [0, 1]"
                                               : "numbers of 32 or 64 bits, taken as they are";
}

/// How many characters are to be put in, left out or replaced to make one text of the other.
std::size_t distance(std::string_view one, std::string_view other) {
  std::vector<std::size_t> row(other.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < one.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < other.size(); ++j) {
      const std::size_t replaced = diagonal + (one[i] == other[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string renaming_of(const std::filesystem::path& folder, std::string_view name) {
  constexpr std::size_t most_characters = 2;
  constexpr int most_files = 1000;  // more are no data set of a few files
  std::error_code error;
  int files = 0;
  for (std::filesystem::directory_iterator entry{folder, error}, end; !error && entry != end && files < most_files;
       entry.increment(error), ++files) {
    const std::string there = entry->path().filename().string();
    const bool is_packed = there.ends_with(".gz");
    if (is_data_name(there) ||
        distance(lower_case(is_packed ? there.substr(0, there.size() - 3) : there), name) > most_characters)
      continue;
    const std::string wanted = fmt::format("{}{}", name, is_packed ? ".gz" : "");
    return fmt::format("mv {} {}", shell_word((folder / there).string()), shell_word((folder / wanted).string()));
  }
  return {};
}

std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name) {
  for (const std::filesystem::path& path : {folder / name, folder / fmt::format("{}.gz", name)}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    if (error) throw ConfigError{fmt::format("{}: cannot be read: {}", path.string(), error.message())};
  }
  const std::string renaming = renaming_of(folder, name);
  throw ConfigError{fmt::format("{0}: neither {1} nor {1}.gz is there; expected one of them{2}{3}", folder.string(),
                                name, renaming.empty() ? "" : ": ", renaming)};
}

std::string extents_text(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::string samples_text(const Shape& sample) {
  return sample.size() > 1 ? fmt::format("images of {}", extents_text(sample))
                           : fmt::format("rows of {} number{}", sample.front(), sample.front() == 1 ? "" : "s");
}

bool trains(const LabelledData::Options& options) {
  return !options.test_only;
}

DataSchema::Task task_of(const LabelledData::Options& options) {
  return options.schema ? options.schema->task : options.task;
}

DataSchema::Scaling scaling_of(const LabelledData::Options& options) {
  if (!options.schema) return options.scaling;
  return options.schema->scales.empty() ? DataSchema::Scaling::none : DataSchema::Scaling::standard;
}

std::string model_has(const DataSchema& schema) {
  return fmt::format(", as the model has {} classes", schema.classes.size());
}

void require_known_classes(const std::filesystem::path& test, const LabelledData::Options& options) {
  if (!options.schema && !options.classes && options.task == DataSchema::Task::classes)
    fail_file(test, "does not tell how many classes there are; expected their number (--classes)");
}

void require_as_trained(const std::filesystem::path& path, const LabelledData::Options& options, const Shape& sample,
                        DataSchema::Numbers numbers) {
  if (!options.schema) return;
  const DataSchema& model = *options.schema;
  if (model.sample.empty())
    fail_file(path,
              fmt::format("holds {}; expected {}, on which the model was trained", samples_text(sample), model.kind));
  if (without_channel(model.sample) != without_channel(sample))
    fail_file(path, fmt::format("holds {}; expected {}, on which the model was trained", samples_text(sample),
                                samples_text(model.sample)));
  if (model.numbers != numbers)
    fail_file(path, fmt::format("holds {}; expected {}, on which the model was trained", numbers_text(numbers),
                                numbers_text(model.numbers)));
}

DataSchema schema_of(const LabelledData::Options& options, std::string kind, const Shape& sample,
                     DataSchema::Numbers numbers) {
  DataSchema schema = options.schema.value_or(DataSchema{.sample = sample, .numbers = numbers});
  schema.kind = std::move(kind);
  schema.split = DataSchema::Split::files;
  schema.test_fraction = 0;
  return schema;
}

LabelRule LabelRule::of(const LabelledData::Options& options, std::int64_t usual, std::string origin) {
  if (options.schema) return {std::ssize(options.schema->classes), model_has(*options.schema)};
  if (options.classes) return {*options.classes, fmt::format(" (--classes {})", *options.classes)};
  return {usual, std::move(origin)};
}

void LabelRule::require(const std::filesystem::path& path, std::int64_t label, std::int64_t number,
                        const char* what) const {
  if (label < 0 || label >= classes)
    throw ConfigError{fmt::format("{}: {} {} (counted from 0) is {}; expected 0 to {}{}", path.string(), what, number,
                                  label, classes - 1, origin)};
}

}  // namespace lockstep
