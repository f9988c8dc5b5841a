// What of a foreign text goes into a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// `text`, cut short.
inline std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 200;
  if (text.size() <= longest) return std::string{text};
  std::size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character of UTF-8
  return std::string{text.substr(0, end)} + "…";
}

}  // namespace lockstep
