// What C calls return, and what they say afterwards.
#pragma once

#include <exception>
#include <utility>

#include <lockstep/core/base/here.hpp>

#include "core/base/parts.hpp"

namespace lockstep::in_c {

/// LOCAL. Keeps the code and the words of `exception` for this thread, and returns the code.
LOCKSTEP_PARTS_API int keep_error(const std::exception_ptr& exception) noexcept;

/// The code of `body`: that of its exception, or LOCKSTEP_OK.
template <class Body>
int code_of(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return 0;
  } catch (...) {
    return keep_error(std::current_exception());
  }
}

/// Throws what `exception`, about an argument or a context, says, after the name and the place of the call.
[[noreturn]] LOCKSTEP_PARTS_API void rethrow_in_call(const std::exception_ptr& exception, const char* call,
                                                     const Here& here);

}  // namespace lockstep::in_c
