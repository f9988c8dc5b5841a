// Text from a file, for a message of one line.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <lockstep/base/printable.hpp>

namespace lockstep {

/// `text`, cut short and without line breaks.
inline std::string one_line(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string shown = printable(text.substr(0, longest));
  std::ranges::replace_if(
      shown, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return text.size() > longest ? shown + "…" : shown;
}

}  // namespace lockstep
