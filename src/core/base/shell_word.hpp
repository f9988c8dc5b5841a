// Words of a command that somebody may paste into a shell.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` as one word of a shell: in quotes, unless it needs none.
inline std::string shell_word(std::string_view text) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return std::string{text};
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
