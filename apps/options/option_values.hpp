// Readers of option values. Each function reads one value, or throws a ConfigError that names the option and what was
// expected.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
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
