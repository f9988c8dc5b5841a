// The part of a foreign text that a message shows.
#pragma once

#include <string>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

/// `text` on one line: control characters, such as line breaks, and bytes that are not UTF-8 are shown as `\x1b` is.
/// Only the first 200 characters, followed by "…", if it has more.
LOCKSTEP_PARTS_API std::string excerpt(std::string_view text);

/// The same for a text that differs from `other`. Where the first 200 characters may not show the difference, begins
/// with "…", shortly before it.
std::string excerpt_from_difference(std::string_view text, std::string_view other);

}  // namespace lockstep
