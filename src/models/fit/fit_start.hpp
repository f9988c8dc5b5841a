// Where a run of `fit` begins.
#pragma once

#include <string>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

namespace lockstep::detail {

/// LOCAL, the same on every rank. `options.start`, or else what the checkpoint says that was restored. Throws what
/// `fit` does if both contradict each other, or neither says it. With a start, nothing else of the checkpoint's counts.
Observer::State start_of(VariableStore& store, const FitOptions& options);

/// What is wrong with a state from which a run goes on, for a message: "has made -1 steps". Empty if nothing is. Losses
/// that are no finite numbers end a run, so there are none in it, unless it proceeds.
std::string fault_in(const Observer::State& state, FitOptions::OnDivergence on_divergence);

}  // namespace lockstep::detail
