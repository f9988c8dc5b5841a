// Words of a command that somebody may paste into a shell.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace lockstep {

/// `text` as one word of a shell: in quotes, unless it needs none.
inline std::string shell_word(std::string_view text) {
  const auto is_plain = [](unsigned char letter) {
    return std::isalnum(letter) || std::string_view{"-_./:=,+@%"}.find(static_cast<char>(letter)) != std::string::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string{text};
  std::string quoted = "'";
  for (const char letter : text) {
    if (letter == '\'')
      quoted += "'\\''";
    else
      quoted += letter;
  }
  return quoted + "'";
}

}  // namespace lockstep
