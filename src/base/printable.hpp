// Text from anywhere, made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` for a terminal. It may be any bytes: those that are no UTF-8, and control characters other than line breaks
/// and tabs, become `\x1b`.
std::string printable(std::string_view text);

}  // namespace lockstep
