// What `fit` looks at before it begins: its options, and where it goes on.
#pragma once

#include <string>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

namespace lockstep::detail {

/// InvalidArgument as `fit` says, for what this rank can see alone.
void require_valid(const FitOptions& options, nn::Model& model, const FitOptions::Samples& data);

/// What decides the samples of a step, and which runs there are, as the ranks compare it.
std::string text_of(const FitOptions::Samples& data, const FitOptions& options);

/// LOCAL, the same on every rank. `options.start`, or else what the checkpoint says that was restored. Throws what
/// `fit` does if both contradict each other, or neither says it. With a start, nothing else of the checkpoint's counts.
Observer::State start_of(VariableStore& store, const FitOptions& options);

/// What is wrong with a state from which a run goes on, for a message: "has made -1 steps". Empty if nothing is. Losses
/// that are no finite numbers end a run, so there are none in it, unless it proceeds.
std::string fault_in(const Observer::State& state, FitOptions::OnDivergence on_divergence);

}  // namespace lockstep::detail
