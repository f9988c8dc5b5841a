// How the calls of a C program begin: with what this rank finds wrong by itself, of which it tells the others.
#pragma once

#include <exception>
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

}  // namespace lockstep::in_c
