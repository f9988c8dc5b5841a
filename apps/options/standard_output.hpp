// What a program writes to standard output, checked.
#pragma once

#include <string_view>

namespace lockstep {

/// Writes `text` and hands it to the system. Error if that fails: a result that nobody gets is no success.
void write_output(std::string_view text);

/// For the beginning of `main`: a standard stream that is closed stays so. Otherwise the next file that is opened would
/// take its number, and get what is written to it.
void keep_closed_streams_closed();

}  // namespace lockstep
