// Lines on stderr that must not be glued to a line of progress, which stays open on a terminal.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

/// Whether a line of progress is open. The ranks of a node share it: their lines end up on one terminal.
enum class OpenLine : std::uint32_t {
  closed,
  open,
  over,  ///< the line that says how the job ends is out: no progress after it
};

/// Uses `shared` from here on, in place of this process's own state; its own again if null. Zero is `closed`.
void share_open_line(std::atomic<std::uint32_t>* shared);

/// Call it before writing text without a line break to stderr. False if nothing may be written any more.
bool begin_open_line();

/// Call it before writing a line to stderr. True if a line was open, which a line break must end first.
bool end_open_line();

/// Writes `line` and a line break to stderr in one piece, in any state of the program, on a line of its own. For the
/// line that says how the job ends, with `exit_code`. Needs no memory, and gives up after 5 s if nobody reads it: the
/// job must end.
void print_last_line(std::string_view line, int exit_code);

/// Whether such a line is out, of any process that shares the state.
bool is_last_line_out();

/// `told` is called with each such line once it is written, on the thread that wrote it. It must not throw.
LOCKSTEP_PARTS_API void tell_last_line(void (*told)(std::string_view line, int exit_code));

}  // namespace lockstep
