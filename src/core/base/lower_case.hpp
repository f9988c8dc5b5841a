// Letters without their case.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` with the letters of ASCII in lower case, and other bytes as they are.
inline std::string lower_case(std::string_view text) {
  std::string lower{text};
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace lockstep
