// Readers of option values. Each function reads one value, or throws a ConfigError that names the option and what was
// expected.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

namespace lockstep {

/// `text` for a message, in quotes if it is empty or contains blanks.
inline std::string shown(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\n") == std::string::npos;
  return plain ? text : fmt::format("'{}'", text);
}

/// All of `text` as a number, at least `smallest`.
template <class Number>
Number parse_number(const std::string& option, const std::string& text, Number smallest, const char* expected) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= smallest))
    throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), expected)};
  return value;
}

/// A whole number from `smallest` to `largest`.
inline std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t smallest = 1,
                                std::int64_t largest = std::numeric_limits<std::int64_t>::max()) {
  const std::string expected = fmt::format("a whole number from {} to {}", smallest, largest);
  const auto value = parse_number<std::int64_t>(option, text, smallest, expected.c_str());
  if (value > largest) throw ConfigError{fmt::format("{} {}: expected {}", option, text, expected)};
  return value;
}

/// A number of bytes from 1 to `largest`, such as 65536, 64K, 1M or 1G. The units are powers of 1024.
inline std::int64_t parse_bytes(const std::string& option, const std::string& text, std::int64_t largest) {
  constexpr std::string_view units = "KMG";
  const std::size_t unit = text.empty() ? units.npos : units.find(text.back());
  const int shift = unit == units.npos ? 0 : 10 * (static_cast<int>(unit) + 1);
  const std::string digits = shift == 0 ? text : text.substr(0, text.size() - 1);
  const std::string expected = fmt::format("a whole number from 1 to {}, such as 65536, 64K, 1M or 1G", largest);
  const auto fail = [&] { throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), expected)}; };
  std::int64_t count{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc{} || end != digits.data() + digits.size() || count < 1 || count > largest >> shift) fail();
  return count << shift;
}

/// One of `values` by name.
template <class Value>
Value parse_choice(const std::string& option, const std::string& text,
                   std::initializer_list<std::pair<const char*, Value>> values) {
  std::string names;
  for (const auto& [name, value] : values) {
    if (text == name) return value;
    names += (names.empty() ? "" : " or ") + std::string{name};
  }
  throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), names)};
}

/// The name of a file.
inline std::string parse_file_name(const std::string& option, const std::string& text) {
  if (text.empty()) throw ConfigError{fmt::format("{} '': expected the name of a file", option)};
  return text;
}

}  // namespace lockstep
