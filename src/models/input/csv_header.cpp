#include "models/input/csv_header.hpp"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include <fmt/format.h>

#include "core/base/excerpt.hpp"
#include "models/input/conversion.hpp"
#include "models/input/schema_names.hpp"

namespace lockstep {
namespace {

void require_commas(const CsvReader& reader, const std::vector<std::string>& names, const WantedColumns& wanted) {
  if (names.size() != 1) return;
  for (const auto& [separator, text, command] : {std::tuple{';', "';'", "tr ',;' '.,'"},
                                                 {'\t', "tabs", "tr '\\t' ','"},
                                                 {'|', "'|'", "tr '|' ','"},
                                                 {' ', "blanks", "tr -s ' ' ','"}}) {
    std::vector<std::string> fields;
    if (names.front().find(separator) == std::string::npos || !split_fields(names.front(), fields, separator)) continue;
    // A name may have blanks.
    if (separator == ' ' && std::ranges::find(fields, wanted.label) == fields.end()) continue;
    reader.fail(fmt::format("its columns are separated by {}; expected commas: {}", text,
                            filtered(reader.file(), command, "-commas.csv")));
  }
}

/// Whether a name is one that a program writes for a column without any, such as an index of pandas or R.
bool is_no_name(std::string_view name) {
  constexpr std::string_view of_pandas = "Unnamed: ", of_readr = "...";
  const auto is_numbered = [&](std::string_view begin) {
    return name.starts_with(begin) && name.size() > begin.size() &&
           name.substr(begin.size()).find_first_not_of("0123456789._") == name.npos;
  };
  return name.find_first_not_of(" \t") == name.npos || is_numbered(of_pandas) || is_numbered(of_readr);
}

/// The fields of `count` but for one, as the command cut names them.
std::string fields_without(std::size_t place, std::size_t count) {
  if (place == 0) return "2-";
  const std::string before = place == 1 ? "1" : fmt::format("1-{}", place);
  return place + 1 == count ? before : fmt::format("{},{}-", before, place + 2);
}

/// Of columns that nobody wants by their names.
void require_names(const CsvReader& reader, const std::vector<std::string>& names, const WantedColumns& wanted) {
  for (std::size_t place = 0; place < names.size(); ++place) {
    const std::string& name = names[place];
    if (!is_no_name(name) || name == wanted.label || std::ranges::find(wanted.inputs, name) != wanted.inputs.end())
      continue;
    const std::string_view origin = place == 0 ? ", as the index that pandas writes without index=False"
                                    : place + 1 == names.size() ? ", as after a comma at the end of each line"
                                                                : "";
    reader.fail(fmt::format(
        "column {} of {} has no name{}{}; expected a name for each: {} leaves it out", place + 1, names.size(),
        name.empty() ? "" : fmt::format(" but \"{}\"", excerpt(name)), origin,
        filtered(reader.file(), fmt::format("cut -d, -f{}", fields_without(place, names.size())), "-named.csv")));
  }
}

/// A table that begins with its first row.
void require_no_numbers(const CsvReader& reader, const std::vector<std::string>& names, const WantedColumns& wanted) {
  double number;
  if (std::ranges::find(names, wanted.label) != names.end() || !wanted.inputs.empty() ||
      !std::ranges::all_of(names, [&](const std::string& name) { return parse_field(name, number); }))
    return;
  reader.fail(
      fmt::format("holds numbers; expected a header, with the names of the columns: {} names them c1, c2 "
                  "and so on, for --label-column",
                  filtered(reader.file(), fmt::format("(seq -s, -f c%g {}; cat)", names.size()), "-named.csv")));
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

bool is_comment(const CsvReader& reader, const CsvColumns& columns) {
  if (!reader.record().starts_with('#')) return false;
  std::vector<std::string> fields;
  if (!split_fields(reader.record(), fields) || fields.size() != columns.names.size()) return true;
  double number;
  return std::ranges::any_of(columns.inputs, [&](std::size_t place) { return !parse_field(fields[place], number); });
}

bool read_names(CsvReader& reader, const WantedColumns& wanted, std::vector<std::string>& names, char separator) {
  while (reader.next()) {
    std::string_view record = reader.record();
    const bool is_marked = record.starts_with('#');
    if (is_marked) record.remove_prefix(std::min(record.find_first_not_of("# "), record.size()));
    if (!split_fields(record, names, separator)) {
      if (is_marked) continue;
      reader.fail("a quoted field is followed by something other than a comma");
    }
    for (std::string& name : names) name = as_utf8(name);
    const auto is_wanted = [&](const std::string& name) {
      return name == wanted.label || std::ranges::find(wanted.inputs, name) != wanted.inputs.end();
    };
    if (!is_marked || std::ranges::any_of(names, is_wanted)) return true;
  }
  return false;
}

CsvColumns read_header(CsvReader& reader, const WantedColumns& wanted) {
  CsvColumns columns;
  if (!read_names(reader, wanted, columns.names))
    reader.file().fail("is empty; expected a header, with the names of its columns");
  require_commas(reader, columns.names, wanted);
  require_names(reader, columns.names, wanted);
  require_no_numbers(reader, columns.names, wanted);
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
