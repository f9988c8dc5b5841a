#include "input/csv_header.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/excerpt.hpp"
#include "input/schema_names.hpp"

namespace lockstep {
namespace {

void require_commas(const CsvReader& reader, const std::vector<std::string>& names) {
  for (const char separator : {';', '\t'})
    if (names.size() == 1 && names.front().find(separator) != std::string::npos)
      reader.fail(fmt::format("its columns are separated by {}; expected commas", separator == ';' ? "';'" : "tabs"));
}

void require_unlike_names(const CsvReader& reader, const std::vector<std::string>& names) {
  const std::optional<Twins> twins = find_twins(names);
  if (!twins) return;
  if (twins->first == twins->second)
    reader.fail(fmt::format("has several columns \"{}\"; expected one", excerpt(twins->first)));
  reader.fail(fmt::format("has the columns {}, which differ only in blanks; expected names that differ",
                          quoted({twins->first, twins->second})));
}

/// "has no column "a", and the surplus columns "b", "c"".
std::string difference_text(const std::vector<std::string>& missing, const std::vector<std::string>& surplus) {
  const auto listed = [](const std::vector<std::string>& names) {
    return fmt::format("column{} {}", names.size() == 1 ? "" : "s", quoted(names));
  };
  if (surplus.empty()) return fmt::format("has no {}", listed(missing));
  if (missing.empty()) return fmt::format("has the surplus {}", listed(surplus));
  return fmt::format("has no {}, and the surplus {}", listed(missing), listed(surplus));
}

/// Finds the columns that are wanted, in any order.
void find_inputs(const CsvReader& reader, const WantedColumns& wanted, CsvColumns& columns) {
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t place = 0; place < columns.names.size(); ++place)
    if (place != columns.label) places.emplace(columns.names[place], place);
  std::vector<std::string> missing, surplus;
  for (const std::string& name : wanted.inputs) {
    const auto found = places.find(name);
    if (found == places.end()) {
      missing.push_back(name);
      continue;
    }
    columns.inputs.push_back(found->second);
    places.erase(found);
  }
  for (std::size_t place = 0; place < columns.names.size(); ++place)
    if (places.contains(columns.names[place])) surplus.push_back(columns.names[place]);
  if (!missing.empty() || !surplus.empty())
    reader.fail(
        fmt::format("{}; expected the columns {}, in any order", difference_text(missing, surplus), wanted.origin));
}

}  // namespace

WantedColumns WantedColumns::of(const LabelledData::Options& options) {
  if (!options.schema) return {.label = as_utf8(options.label_column)};
  const DataSchema& schema = *options.schema;
  return {.label = schema.label_column.empty() ? as_utf8(options.label_column) : schema.label_column,
          .inputs = schema.columns,
          .origin = "on which the model was trained"};
}

std::vector<std::string> CsvColumns::input_names() const {
  std::vector<std::string> found;
  for (const std::size_t place : inputs) found.push_back(names[place]);
  return found;
}

void split_record(const CsvReader& reader, std::vector<std::string>& fields) {
  if (!split_fields(reader.record(), fields)) reader.fail("a quoted field is followed by something other than a comma");
}

CsvColumns read_header(CsvReader& reader, const WantedColumns& wanted) {
  if (!reader.next()) reader.file().fail("is empty; expected a header, with the names of its columns");
  CsvColumns columns;
  split_record(reader, columns.names);
  require_commas(reader, columns.names);
  for (std::string& name : columns.names) name = as_utf8(name);
  require_unlike_names(reader, columns.names);
  const auto found = std::ranges::find(columns.names, wanted.label);
  if (found != columns.names.end()) columns.label = static_cast<std::size_t>(found - columns.names.begin());
  if (std::ssize(columns.names) == (columns.label ? 1 : 0))
    reader.fail("has no column besides the label; expected one or more of numbers");
  if (!wanted.inputs.empty()) {
    find_inputs(reader, wanted, columns);
    return columns;
  }
  for (std::size_t place = 0; place < columns.names.size(); ++place)
    if (place != columns.label) columns.inputs.push_back(place);
  return columns;
}

void require_label_column(const CsvReader& reader, const CsvColumns& columns, const std::string& label) {
  if (!columns.label)
    reader.fail(
        fmt::format("has no column \"{}\" among its columns {}; expected one with the label of each row "
                    "(--label-column)",
                    excerpt(label), quoted(columns.names)));
}

}  // namespace lockstep
