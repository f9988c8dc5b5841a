// Letters without their case.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lockstep {

/// `text` with the letters of ASCII in lower case, and other bytes as they are.
inline std::string lower_case(std::string_view text) {
  std::string lower{text};
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(c < 0x80 ? std::tolower(c) : c); });
  return lower;
}

}  // namespace lockstep
