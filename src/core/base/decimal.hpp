// Decimal numbers as text, also those beyond the edges of their type.
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace detail {

/// Whether a decimal number that no double is near to is too large, rather than too small.
inline bool is_huge(std::string_view number) {
  const std::size_t exponent_at = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, exponent_at);
  const std::size_t leading = digits.find_first_of("123456789"), point = std::min(digits.find('.'), digits.size());
  if (leading == digits.npos) return false;
  // Of the leading digit, whose power of 10 the exponent is added to. A text has fewer than 2^62 digits.
  const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(leading);
  std::string_view written = number.substr(std::min(exponent_at + 1, number.size()));
  const bool is_negative = written.starts_with('-');
  if (is_negative || written.starts_with('+')) written.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), exponent);
  if (error == std::errc::result_out_of_range) return !is_negative;
  return place + (is_negative ? -exponent : exponent) > 0;
}

}  // namespace detail

/// As std::from_chars, but a number that lies between 0 and the smallest double is 0, and one beyond the largest is
/// infinite, each with its sign. std::from_chars tells neither from the other and yields no number.
template <class Number>
std::from_chars_result from_decimal(std::string_view text, Number& number) {
  std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), number);
  if constexpr (std::floating_point<Number>) {
    if (result.ec != std::errc::result_out_of_range) return result;
    const std::string_view read{text.data(), result.ptr};
    number = detail::is_huge(read) ? std::numeric_limits<Number>::infinity() : Number{0};
    if (read.starts_with('-')) number = -number;
    result.ec = std::errc{};
  }
  return result;
}

/// All of `text` as a number; false if it is none, or an integer that does not fit.
template <class Number>
bool parse_decimal(std::string_view text, Number& number) {
  const auto [end, error] = from_decimal(text, number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace lockstep
