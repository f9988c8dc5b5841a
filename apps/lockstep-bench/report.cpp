#include "apps/lockstep-bench/report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/standard_output.hpp"
#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"

namespace lockstep::bench {
namespace {

constexpr std::string_view json_begin = R"({"bench":")";

/// Two decimals, or two digits for small values. Whole numbers have no decimals, so "0" means exactly 0.
std::string text_of(double value) {
  if (value == std::round(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return std::abs(value) < 0.1 ? fmt::format("{:.2g}", value) : fmt::format("{:.2f}", value);
}
std::string text_of(std::int64_t value) {
  return fmt::format("{}", value);
}
std::string text_of(const std::string& value) {
  return value;
}

std::string unit_text(const Cell& cell) {
  return *cell.unit ? fmt::format("({})", cell.unit) : std::string{};
}

/// Room for the digits, or for the heading.
std::size_t width_of(const Cell& cell) {
  return std::max({cell.digits, std::strlen(cell.name), unit_text(cell).size()}) + 1;
}

std::string value_text(const Cell& cell) {
  return std::visit([](const auto& value) { return text_of(value); }, cell.value);
}

template <class Text>
std::string line_of(const char* begin, const Row& row, Text&& text) {
  std::string line = begin;
  std::size_t end = 0;
  for (const Cell& cell : row) {
    if (cell.place != Place::column) continue;
    end += width_of(cell);
    // A value wider than its column pushes the later ones right. The first column needs no blank: the mark before it is
    // one.
    if (end > width_of(cell)) line += ' ';
    line += fmt::format("{:>{}}", text(cell), end - std::min(end, line.size()));
  }
  return line + "\n";
}

/// Columns; a comma may follow.
constexpr std::size_t widest_title = 100;

}  // namespace

std::string size_text(std::int64_t bytes) {
  if (bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  return bytes % (1 << 10) == 0 ? fmt::format("{}K", bytes >> 10) : fmt::format("{}", bytes);
}

std::string table_title(const Subject& subject, const Row& row) {
  std::string title = fmt::format("# lockstep-bench {}: {} {}, device {}", subject.bench, subject.ranks,
                                  subject.ranks == 1 ? "rank" : "ranks", subject.device);
  std::size_t line_begin = 0;
  for (const Cell& cell : row) {
    if (cell.place != Place::title) continue;
    const std::string words = fmt::format("{} {}{}{}", cell.name, value_text(cell), *cell.unit ? " " : "", cell.unit);
    title += ',';
    if (title.size() - line_begin + 1 + words.size() >= widest_title) {
      title += "\n#";
      line_begin = title.size() - 1;
    }
    title += ' ' + words;
  }
  return title + "\n";
}

std::string table_head(const Row& row) {
  return line_of("#", row, [](const Cell& cell) { return std::string{cell.name}; }) +
         line_of("#", row, [](const Cell& cell) { return unit_text(cell); });
}

std::string table_line(const Row& row) {
  return line_of("", row, value_text);
}

std::string to_json(const Subject& subject, const std::vector<Row>& rows) {
  using Json = nlohmann::ordered_json;
  Json all = Json::array();
  for (const Row& row : rows) {
    Json object = Json::object();
    for (const Cell& cell : row) std::visit([&](const auto& value) { object[cell.name] = value; }, cell.value);
    all.push_back(std::move(object));
  }
  return Json{{"bench", subject.bench}, {"ranks", subject.ranks}, {"device", subject.device}, {"rows", std::move(all)}}
      .dump();
}

Report::Report(Subject subject, std::filesystem::path json)
    : subject_{std::move(subject)}, name_{fmt::format("--json {}", json.string())} {
  if (json.empty()) return;
  require_own(json, {json_begin}, name_, "a new file, or one of an earlier measurement");
  try {
    file_ = open_output(json, OpenOutput::at_end, name_);
  } catch (const FileError& error) {
    if (!is_about_path(error.code())) throw;
    throw ConfigError{fmt::format("{}; expected a file that can be written", error.what())};
  }
}

void Report::add(const Row& row) {
  if (rows_.empty()) write_for_reader(table_title(subject_, row) + table_head(row));
  write_for_reader(table_line(row));
  rows_.push_back(row);
}

void Report::finish() {
  if (!file_) return;
  // What has no end to write at, such as a pipe, cannot be cut.
  if (::ftruncate(file_->get(), 0) != 0 && errno != EINVAL) throw FileError{name_, "written", errno};
  write_all(*file_, to_json(subject_, rows_) + "\n", name_);
}

}  // namespace lockstep::bench
