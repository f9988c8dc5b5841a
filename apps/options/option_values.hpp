// Readers of option values. Each function reads one value, or throws a ConfigError that names the option and what was
// expected.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/decimal.hpp"
#include "core/base/excerpt.hpp"

namespace lockstep {

/// An excerpt of `text` for a message, in quotes if it is empty or contains blanks.
inline std::string shown(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(" \t\n") == std::string::npos;
  return plain ? excerpt(text) : fmt::format("'{}'", excerpt(text));
}

/// All of `text` as a number, at least `smallest`.
template <class Number>
Number parse_number(const std::string& option, const std::string& text, Number smallest, const char* expected) {
  Number value{};
  if (!parse_decimal(text, value) || !(value >= smallest))
    throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), expected)};
  return value;
}

/// A whole number from `smallest` to `largest`.
inline std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t smallest = 1,
                                std::int64_t largest = std::numeric_limits<std::int64_t>::max()) {
  const std::string expected = fmt::format("a whole number from {} to {}", smallest, largest);
  const auto value = parse_number<std::int64_t>(option, text, smallest, expected.c_str());
  if (value > largest) throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), expected)};
  return value;
}

/// A value that exceeds a float would become infinite in an f32 model.
inline double require_float(const std::string& option, const std::string& text, double value) {
  if (value > std::numeric_limits<float>::max())
    throw ConfigError{fmt::format("{} {}: expected a number below 3.4e38", option, shown(text))};
  return value;
}

/// The name of a network. The runtime reads it, when it knows the host's addresses.
inline std::string parse_network_name(const std::string& option, const std::string& text) {
  if (text.empty()) throw ConfigError{fmt::format("{}: expected an IPv4 network such as 10.77.0.0/24", option)};
  return text;
}

/// A positive number.
inline double parse_positive(const std::string& option, const std::string& text) {
  return require_float(
      option, text,
      parse_number<double>(option, text, std::numeric_limits<double>::denorm_min(), "a positive number, such as 0.1"));
}

/// A number from 0.
inline double parse_not_negative(const std::string& option, const std::string& text) {
  return require_float(option, text, parse_number<double>(option, text, 0, "a number from 0, such as 0.1"));
}

/// A number from 0 to below 1.
inline double parse_fraction(const std::string& option, const std::string& text) {
  constexpr const char* expected = "a number from 0 to below 1";
  const auto value = parse_number<double>(option, text, 0, expected);
  if (!(value < 1)) throw ConfigError{fmt::format("{} {}: expected {}", option, shown(text), expected)};
  return value;
}

/// Sizes of layers, such as 512,512.
inline std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text) {
  std::vector<std::int64_t> sizes;
  // Of several, says which list the wrong one is in.
  const std::string where = text.find(',') == text.npos ? option : fmt::format("{} {}:", option, shown(text));
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    sizes.push_back(parse_number<std::int64_t>(where, text.substr(first, comma - first), 1,
                                               "sizes from 1, separated by commas, such as 512,512"));
    if (sizes.back() > 1 << 20)
      throw ConfigError{fmt::format("{} {}: expected at most {} a layer", option, shown(text), 1 << 20)};
    first = comma + 1;
  }
  return sizes;
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
                   const std::vector<std::pair<const char*, Value>>& values) {
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
