// What lockstep's libraries show to programs. Everything else in them is hidden.
#pragma once

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#if !defined(__cpp_lib_source_location)
#error "lockstep needs C++20 with std::source_location: g++ 12 or clang 16, or a later one, with -std=c++20"
#endif

/// Makes a name visible to programs that link the library. It stands before a function or a variable, and in a class
/// between `class` and its name. Exceptions have it too, because a program that catches one must know the same type.
/// What a header defines does not need it.
#define LOCKSTEP_API [[gnu::visibility("default")]]

namespace lockstep::detail {

/// What lockstep's own code, and nobody else, does with a T. Its definition is not installed.
template <class T>
struct Inside;

}  // namespace lockstep::detail
