// Text from anywhere, made fit to be shown.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

/// The bytes of the character that `text`, which is not empty, begins with; 0 unless they are UTF-8 and no control
/// character. Line breaks and tabs are characters.
std::size_t character_bytes(std::string_view text);

/// "\x1b": how messages show a byte that is no character.
std::string escaped(char byte);

/// `text` for a terminal. It may be any bytes: those that are no UTF-8, and control characters other than line breaks
/// and tabs, become `\x1b`.
LOCKSTEP_PARTS_API std::string printable(std::string_view text);

}  // namespace lockstep
