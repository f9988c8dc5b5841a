// What of a foreign text goes into a message.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// `text` on one line: control characters, line breaks among them, and bytes that are no UTF-8 become `\x1b`. Of more
/// than 200 characters, the first of these and "…".
std::string excerpt(std::string_view text);

/// The same of a text that differs from `other`. If it is longer, begins with "…" shortly before the first difference.
std::string excerpt_from_difference(std::string_view text, std::string_view other);

}  // namespace lockstep
