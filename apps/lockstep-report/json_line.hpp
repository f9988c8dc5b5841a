// The members of a JSON object that fills a line, without a tree of them: files of metrics have millions of lines.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace lockstep::report {

namespace detail {

inline std::size_t after_spaces(std::string_view line, std::size_t at) {
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) ++at;
  return at;
}

/// The place after the string that begins at `at`; npos if the line ends before.
inline std::size_t after_string(std::string_view line, std::size_t at) {
  for (++at; at < line.size(); ++at) {
    if (line[at] == '"') return at + 1;
    if (line[at] == '\\') ++at;
  }
  return line.npos;
}

/// The same for a value of any kind. What a list or an object holds is not looked at.
inline std::size_t after_value(std::string_view line, std::size_t at) {
  if (at < line.size() && line[at] == '"') return after_string(line, at);
  std::size_t levels = 0;
  while (at < line.size()) {
    switch (line[at]) {
      case '"': at = after_string(line, at); continue;
      case '[':
      case '{': ++levels; break;
      case ']':
      case '}':
        if (levels == 0) return at;
        if (--levels == 0) return at + 1;
        break;
      case ',':
      case ' ':
      case '\t':
      case '\r':
        if (levels == 0) return at;
        break;
      default: break;
    }
    ++at;
  }
  return std::string_view::npos;
}

}  // namespace detail

/// Calls `visit(key, value)` for each member of the object in `line`, both as they are written; a string without its
/// quotes. False if the line ends before the object does, or is no object: members before that were visited.
template <typename Visit>
bool visit_members(std::string_view line, Visit&& visit) {
  std::size_t at = detail::after_spaces(line, 0);
  if (at >= line.size() || line[at] != '{') return false;
  at = detail::after_spaces(line, at + 1);
  if (at < line.size() && line[at] == '}') return detail::after_spaces(line, at + 1) == line.size();
  while (at < line.size() && line[at] == '"') {
    const std::size_t key_end = detail::after_string(line, at);
    if (key_end == line.npos) return false;
    const std::string_view key = line.substr(at + 1, key_end - at - 2);
    at = detail::after_spaces(line, key_end);
    if (at >= line.size() || line[at] != ':') return false;
    at = detail::after_spaces(line, at + 1);
    const std::size_t value_end = detail::after_value(line, at);
    if (value_end == line.npos || value_end == at) return false;
    const bool is_string = line[at] == '"';
    visit(key, line.substr(at + (is_string ? 1 : 0), value_end - at - (is_string ? 2 : 0)));
    at = detail::after_spaces(line, value_end);
    if (at < line.size() && line[at] == '}') return detail::after_spaces(line, at + 1) == line.size();
    if (at >= line.size() || line[at] != ',') return false;
    at = detail::after_spaces(line, at + 1);
  }
  return false;
}

/// NaN for what is no number, such as null, or has no finite value.
inline double number_in(std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || !(number - number == 0))
    return std::numeric_limits<double>::quiet_NaN();
  return number;
}

inline std::optional<std::int64_t> integer_in(std::string_view value) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size()) return std::nullopt;
  return number;
}

}  // namespace lockstep::report
