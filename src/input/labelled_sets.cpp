#include "input/labelled_sets.hpp"

#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>

#include "input/failure.hpp"

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

}  // namespace

std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name) {
  for (const std::filesystem::path& path : {folder / name, folder / fmt::format("{}.gz", name)}) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) return path;
    if (error) throw ConfigError{fmt::format("{}: cannot be read: {}", path.string(), error.message())};
  }
  throw ConfigError{fmt::format("{0}: neither {1} nor {1}.gz is there; expected one of them", folder.string(), name)};
}

std::string extents_text(const Shape& shape) {
  return fmt::format("{}", fmt::join(shape, " x "));
}

std::string samples_text(const Shape& sample) {
  return sample.size() > 1 ? fmt::format("images of {}", extents_text(sample))
                           : fmt::format("rows of {} number{}", sample.front(), sample.front() == 1 ? "" : "s");
}

bool trains(const LabelledData::Options& options) {
  return options.parts == LabelledData::Options::Parts::train_and_test;
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
