// What exceptions say to users.
#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// Whether an exception is the program's own, or reports a mistake of the program. A line about such an exception also
/// names the place in the program; others, such as those about files, need no place.
bool is_of_program(const std::exception_ptr& exception);

/// The message of an exception, on one line; "an exception of an unknown type" if it has none.
std::string message_of(const std::exception_ptr& exception);

}  // namespace lockstep
