#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/schema.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/foreign_json.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/schema_names.hpp"

namespace lockstep {
namespace {

using Json = OrderedJson;

constexpr std::size_t longest_schema = 64 << 20;
constexpr JsonLimits shape_of_schema{.levels = 2};  // lists in an object
constexpr std::size_t most_extents = 3;
constexpr std::int64_t most_numbers = std::int64_t{1} << 40;

constexpr std::array kinds_of_samples{"IDX", "CIFAR-10", "CIFAR-100", "arrays of NumPy", "CSV"};
constexpr std::array kinds_of_text{"text", "bytes", "tokens"};
constexpr std::array keys{"kind",    "sample",     "numbers",    "columns",      "label_column",
                          "task",    "means",      "deviations", "label_mean",   "label_deviation",
                          "classes", "vocabulary", "split",      "test_fraction"};

constexpr std::pair<std::string_view, DataSchema::Numbers> number_kinds[] = {{"bytes", DataSchema::Numbers::bytes},
                                                                             {"floats", DataSchema::Numbers::floats}};
constexpr std::pair<std::string_view, DataSchema::Task> tasks[] = {{"classes", DataSchema::Task::classes},
                                                                   {"regression", DataSchema::Task::regression}};
constexpr std::pair<std::string_view, DataSchema::Split> split_kinds[] = {
    {"files", DataSchema::Split::files}, {"hash", DataSchema::Split::hash}, {"last", DataSchema::Split::last}};

template <class Value, std::size_t n>
std::string text_of(const std::pair<std::string_view, Value> (&choices)[n], Value value) {
  return std::string{std::ranges::find(choices, value, &std::pair<std::string_view, Value>::second)->first};
}

[[noreturn]] void refuse(std::string_view key, std::string_view expected) {
  throw Error{fmt::format("key \"{}\": expected {}", excerpt(key), expected)};
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) refuse(key, "a text");
  return found->get<std::string>();
}

/// For a text that is none of `choices`.
[[noreturn]] void refuse_choice(std::string_view key, std::vector<std::string> choices, std::string_view text) {
  const std::string last = quoted({choices.back()});
  choices.pop_back();
  refuse(key, fmt::format("{} or {}, not \"{}\"", quoted(choices), last, excerpt(text)));
}

template <class Value, std::size_t n>
Value choice_at(const Json& json, const char* key, const std::pair<std::string_view, Value> (&choices)[n]) {
  const std::string text = text_at(json, key);
  const auto* const found = std::ranges::find(choices, text, &std::pair<std::string_view, Value>::first);
  if (found == std::end(choices)) {
    std::vector<std::string> names;
    for (const auto& choice : choices) names.emplace_back(choice.first);
    refuse_choice(key, std::move(names), text);
  }
  return found->second;
}

std::int64_t whole_number(const Json& value, const char* key, std::int64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 1 ||
      value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    refuse(key, fmt::format("a whole number from 1 to {}", most));
  return value.get<std::int64_t>();
}

std::vector<std::string> names_from(const Json& value, const char* key) {
  if (!value.is_array() || value.empty()) refuse(key, "names");
  std::vector<std::string> names;
  for (const Json& name : value) {
    if (!name.is_string()) refuse(key, "names");
    names.push_back(name.get<std::string>());
  }
  if (find_twins(names)) refuse(key, "names that differ");
  return names;
}

Shape sample_from(const Json& value) {
  if (!value.is_array() || value.empty() || value.size() > most_extents) refuse("sample", "1 to 3 extents");
  Shape sample;
  std::int64_t numbers = 1;
  for (const Json& extent : value) {
    sample.push_back(whole_number(extent, "sample", most_numbers / numbers));
    numbers *= sample.back();
  }
  return sample;
}

/// Classes that are numbers are one: how many there are.
std::vector<std::string> classes_from(const Json& value) {
  if (!value.is_array()) return number_names(whole_number(value, "classes", most_classes));
  if (value.size() > static_cast<std::size_t>(most_classes)) refuse("classes", fmt::format("at most {}", most_classes));
  return names_from(value, "classes");
}

double number_from(const Json& value, const char* key) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "finite numbers");
  return value.get<double>();
}

DataSchema::Scale scale_from(const Json& mean, const char* mean_key, const Json& deviation, const char* deviation_key) {
  const DataSchema::Scale scale{number_from(mean, mean_key), number_from(deviation, deviation_key)};
  if (scale.deviation <= 0) refuse(deviation_key, "numbers above 0");
  return scale;
}

/// The task, and how columns are scaled: of CSV alone.
void read_task(const Json& json, DataSchema& schema) {
  for (const char* const key : {"task", "means", "deviations", "label_mean", "label_deviation"})
    if (schema.kind != "CSV" && json.contains(key)) refuse(key, "none but for CSV");
  if (json.contains("task")) schema.task = choice_at(json, "task", tasks);
  const bool regresses = schema.task == DataSchema::Task::regression;
  if (regresses && json.contains("classes")) refuse("classes", "none for a regression");
  const bool scales = json.contains("means");
  for (const char* const key : {"label_mean", "label_deviation"})
    if (json.contains(key) != (scales && regresses)) refuse(key, "it for a regression with means, and for no other");
  if (json.contains("deviations") != scales) refuse("deviations", "both means and deviations, or none");
  if (!scales) return;
  const Json &means = json["means"], &deviations = json["deviations"];
  for (const char* const key : {"means", "deviations"})
    if (!json[key].is_array() || json[key].size() != schema.columns.size()) refuse(key, "a number for each column");
  for (std::size_t column = 0; column < means.size(); ++column)
    schema.scales.push_back(scale_from(means[column], "means", deviations[column], "deviations"));
  if (regresses)
    schema.label_scale = scale_from(json["label_mean"], "label_mean", json["label_deviation"], "label_deviation");
}

void read_columns(const Json& json, DataSchema& schema) {
  if (json.contains("label_column")) schema.label_column = text_at(json, "label_column");
  if (!json.contains("columns")) return;
  schema.columns = names_from(json["columns"], "columns");
  if (schema.sample != Shape{std::ssize(schema.columns)}) refuse("columns", "as many names as a sample has numbers");
  if (std::ranges::count(schema.columns, schema.label_column) > 0)
    refuse("label_column", "another column than those of the numbers");
}

void read_sample(const Json& json, DataSchema& schema) {
  schema.sample = sample_from(json.value("sample", Json{}));
  schema.numbers = choice_at(json, "numbers", number_kinds);
  read_columns(json, schema);
  read_task(json, schema);
  if (schema.task == DataSchema::Task::classes) schema.classes = classes_from(json.value("classes", Json{}));
}

DataSchema schema_from(const Json& json) {
  if (!json.is_object()) throw Error{"expected an object"};
  for (const auto& [key, unused] : json.items())
    if (std::ranges::find(keys, key) == keys.end()) refuse(key, "none of this name");
  DataSchema schema{.kind = text_at(json, "kind")};
  const bool is_text = std::ranges::find(kinds_of_text, schema.kind) != kinds_of_text.end();
  if (!is_text && std::ranges::find(kinds_of_samples, schema.kind) == kinds_of_samples.end()) {
    std::vector<std::string> kinds{kinds_of_samples.begin(), kinds_of_samples.end()};
    kinds.insert(kinds.end(), kinds_of_text.begin(), kinds_of_text.end());
    refuse_choice("kind", std::move(kinds), schema.kind);
  }
  if (!is_text) read_sample(json, schema);
  if (schema.kind == "CSV" && schema.columns.empty()) refuse("columns", "names");
  if (schema.kind == "tokens") schema.vocabulary = whole_number(json.value("vocabulary", Json{}), "vocabulary", 65536);
  schema.split = choice_at(json, "split", split_kinds);
  if (schema.split == DataSchema::Split::files) return schema;
  const Json fraction = json.value("test_fraction", Json{});
  if (!fraction.is_number()) refuse("test_fraction", "a number");
  schema.test_fraction = fraction.get<double>();
  if (!(schema.test_fraction > 0 && schema.test_fraction < 1)) refuse("test_fraction", "a number between 0 and 1");
  return schema;
}

void add_scales(Json& json, const DataSchema& schema) {
  for (const DataSchema::Scale& scale : schema.scales) {
    json["means"].push_back(scale.mean);
    json["deviations"].push_back(scale.deviation);
  }
  if (schema.task != DataSchema::Task::regression) return;
  json["label_mean"] = schema.label_scale.mean;
  json["label_deviation"] = schema.label_scale.deviation;
}

}  // namespace

std::string DataSchema::to_json() const {
  Json json{{"kind", kind}};
  if (!sample.empty()) {
    json["sample"] = sample;
    json["numbers"] = text_of(number_kinds, numbers);
    if (task == Task::regression)
      json["task"] = text_of(tasks, task);
    else if (are_number_names(classes))
      json["classes"] = classes.size();
    else
      json["classes"] = classes;
  }
  if (!columns.empty()) json["columns"] = columns;
  if (!label_column.empty()) json["label_column"] = label_column;
  if (!scales.empty()) add_scales(json, *this);
  if (vocabulary) json["vocabulary"] = *vocabulary;
  json["split"] = text_of(split_kinds, split);
  if (split != Split::files) json["test_fraction"] = test_fraction;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

DataSchema DataSchema::parse(std::string_view text, std::string_view source) {
  const auto fail = [&](std::string_view why) {
    throw Error{fmt::format("{}: is no schema of data that this version of lockstep can read: {}", source, why)};
  };
  try {
    if (text.size() > longest_schema) throw Error{fmt::format("has more than {} bytes", longest_schema)};
    return schema_from(parse_foreign_json(text, shape_of_schema));
  } catch (const Error& error) {
    fail(error.what());
  }
  return {};
}

}  // namespace lockstep
