// How the calls of a C program begin: with what this rank finds wrong by itself, of which it tells the others.
#pragma once

#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/group/group.hpp>

#include "c/errors.hpp"

namespace lockstep::in_c {

/// What `body` returns, whose exceptions about arguments and contexts begin with the name and the place of the call.
template <class Body>
decltype(auto) in_call(const char* call, const Here& here, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_in_call(std::current_exception(), call, here);
  }
}

/// Calls `prepare`, which this rank does by itself. If it fails, the others get a PeerError, wherever they are.
template <class Prepare>
void prepare_in(const Group& ranks, const char* call, const Here& here, Prepare&& prepare) {
  std::exception_ptr wrong;
  try {
    in_call(call, here, std::forward<Prepare>(prepare));
  } catch (...) {
    wrong = std::current_exception();
  }
  if (wrong) Group{ranks}.fail(wrong, here);
}

/// Unless `holds`, throws an Exception with the text.
template <class Exception = InvalidArgument, class... Values>
void require(bool holds, fmt::format_string<Values...> otherwise, Values&&... values) {
  if (!holds) throw Exception{fmt::format(otherwise, std::forward<Values>(values)...)};
}

/// Unless the program knows the members of `options` that the library knows. Returns them.
template <class Options>
const Options& require_size(const Options& options, const char* defaults) {
  require(options.size == sizeof options, "the options have size {}; expected {}, as {} says", options.size,
          sizeof options, defaults);
  return options;
}

/// Unless `count` elements of `bytes` bytes can be at `values`.
inline void require_memory(const void* values, std::int64_t count, std::int64_t bytes, std::string_view name) {
  require(values || count == 0, "{} is NULL; expected {} elements", name, count);
  require(reinterpret_cast<std::uintptr_t>(values) % static_cast<std::uintptr_t>(bytes) == 0,
          "{} is not aligned; expected an address that {} divides", name, bytes);
}

}  // namespace lockstep::in_c
