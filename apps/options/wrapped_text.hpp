// Text in as many columns as a terminal has.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

/// `text` with its lines in at most `width` columns, broken between words. In a line that begins with two blanks, what
/// stands to the right goes on below itself; where that leaves it too few columns, it goes on in the next line. A word
/// that is wider stays whole.
std::string wrapped(std::string_view text, std::size_t width);

}  // namespace lockstep
