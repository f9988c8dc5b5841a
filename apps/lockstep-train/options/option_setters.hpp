// What the rows of the table of options are made of: setters for members of the options, and readers of values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/options/option_row.hpp"
#include "apps/options/option_values.hpp"

namespace lockstep {

template <class Part>
Part& part_of(CommandLine& line) {
  if constexpr (std::is_same_v<Part, RuntimeOptions>)
    return line.runtime;
  else if constexpr (std::is_same_v<Part, TrainingOptions>)
    return line.training;
  else
    return line;
}

/// Sets `member` to `read(option, text)`.
template <class Part, class Member, class Read>
SetOption set(Member Part::*member, Read read) {
  return [=](CommandLine& line, const std::string& option, const std::string& text) {
    part_of<Part>(line).*member = static_cast<Member>(read(option, text));
  };
}

/// Sets `member` to `value`, for a flag.
template <class Part, class Member>
SetOption set_to(Member Part::*member, std::type_identity_t<Member> value) {
  return set(member, [=](const std::string&, const std::string&) { return value; });
}

inline std::string any_text(const std::string&, const std::string& text) {
  return text;
}

/// Reads a whole number from `smallest` to `largest`.
inline auto count(std::int64_t smallest = 1, std::int64_t largest = std::numeric_limits<std::int64_t>::max()) {
  return
      [=](const std::string& option, const std::string& text) { return parse_count(option, text, smallest, largest); };
}

/// Reads one of `values` by name.
template <class Value>
auto one_of(std::vector<std::pair<const char*, Value>> values) {
  return [=](const std::string& option, const std::string& text) { return parse_choice<Value>(option, text, values); };
}

/// Reads by a function of the library, which knows nothing of options: puts the option's name before its complaint.
template <class Parse>
auto named(Parse parse) {
  return [=](const std::string& option, const std::string& text) {
    try {
      return parse(text);
    } catch (const ConfigError& error) {
      throw ConfigError{fmt::format("{}: {}", option, error.what())};
    }
  };
}

}  // namespace lockstep
