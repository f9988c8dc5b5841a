// How calls that take a model check it, and what they say of LibTorch's failures.
#pragma once

#include <exception>
#include <utility>

#include "c/calls.hpp"
#include "torch_c/live_models.hpp"

namespace lockstep::in_c {

/// What `body` returns. What LibTorch throws, mostly about an argument, becomes an InvalidArgument of one line.
[[noreturn]] void rethrow_in_line(const std::exception_ptr& exception);
template <class Body>
decltype(auto) in_line(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    rethrow_in_line(std::current_exception());
  }
}

/// The code of a COLL call: `prepare(model)` as prepare_in, and then `act(model, ranks, here)`.
template <class Prepare, class Act>
int in_model(const char* call, const lockstep_model* handle, const char* at, Prepare&& prepare, Act&& act) {
  return code_of([&] {
    const KeptPlace place{at};
    lockstep_model& model = in_call(call, place.here(), [&]() -> lockstep_model& { return live_model(handle); });
    const PhaseAgain phase;
    Group ranks = place.on(model.strategy.ranks());
    prepare_in(ranks, call, place.here(), [&] { prepare(model); });
    in_line([&] { act(model, ranks, place.here()); });
  });
}

/// InvalidArgument for a path that is null or empty.
void require_path(const char* path, const char* name);

}  // namespace lockstep::in_c
