// Names that a schema has: of columns and of classes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "0", "1", … up to `count` of them: the names of classes that are numbers.
std::vector<std::string> number_names(std::int64_t count);

/// Whether these are such names.
bool are_number_names(const std::vector<std::string>& names);

/// `text` as it is, or from Latin-1 if it is no UTF-8 without control characters. A table has the same names in both
/// encodings.
std::string as_utf8(std::string_view text);

/// The names in quotes, for a message: at most 8 of them, and about 100 characters.
std::string quoted(const std::vector<std::string>& names);

/// A pair of names that are the same without their blanks, if there is one: the first in the order of the list.
struct Twins {
  std::string first, second;
};
std::optional<Twins> find_twins(const std::vector<std::string>& names);

}  // namespace lockstep
