// What a program writes to standard output, checked.
#pragma once

#include <cstddef>
#include <string_view>

namespace lockstep {

/// Writes `text` and hands it to the system, whether the stream blocks or not. Error if that fails: a result that
/// cannot be kept is no success. A reader who has seen enough, as `head` has, is no failure.
void write_output(std::string_view text);

/// The same for text that a person reads: lines longer than the terminal is wide break between words.
void write_for_reader(std::string_view text);

/// The columns that a line of standard output may take: as COLUMNS says, or else the terminal. The largest number there
/// is if neither does.
std::size_t columns_of_output();

}  // namespace lockstep
