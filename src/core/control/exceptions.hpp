// What exceptions say to users.
#pragma once

#include <exception>
#include <string>

#include <lockstep/core/base/error.hpp>

namespace lockstep {

/// A stall of which nobody can say whose it is, although every rank has come.
class CommonStall : public StallError {
 public:
  using StallError::StallError;
};

bool is_common_stall(const std::exception_ptr& exception);

/// Whether an exception is the program's own, or reports a mistake of the program. A line about such an exception also
/// names the place in the program; others, such as those about files, need no place.
bool is_of_program(const std::exception_ptr& exception);

/// The message of an exception, on one line; "an exception of an unknown type" if it has none.
std::string message_of(const std::exception_ptr& exception);

}  // namespace lockstep
