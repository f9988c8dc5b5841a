#include "models/fit/fit_start.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "sync/strategy/fit_progress.hpp"

namespace lockstep::detail {
namespace {

Observer::State state_in(const FitProgress::Restored& restored, const FitOptions& options) {
  const auto fail = [&](std::string_view what) {
    throw CheckpointError{fmt::format("checkpoint {}: its state of fit {}", restored.checkpoint, what)};
  };
  try {
    Observer::State state = Observer::State::parse(*restored.state);
    if (const std::string fault = fault_in(state, options.on_divergence); !fault.empty()) fail(fault);
    return state;
  } catch (const CheckpointError&) {
    throw;
  } catch (const Error& error) {
    fail(fmt::format("is {}", error.what()));
  }
  return {};
}

/// The number of steps that the text says; nothing if it is no state of a run.
std::optional<std::int64_t> steps_in(const std::string& text) {
  try {
    return Observer::State::parse(text).steps;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string fault_in(const Observer::State& state, FitOptions::OnDivergence on_divergence) {
  if (state.steps < 0) return fmt::format("has made {} steps", state.steps);
  for (const ops::Kernels::BatchLoss::Weighed& step : state.recent) {
    if (!std::isfinite(step.weight) || step.weight < 0)
      return fmt::format("has a step whose labels weigh {}", step.weight);
    if (!std::isfinite(step.loss) && on_divergence == FitOptions::OnDivergence::stop)
      return fmt::format("has a step with the loss {}", step.loss);
  }
  return {};
}

Observer::State start_of(VariableStore& store, const FitOptions& options) {
  if (options.start)
    if (const std::string fault = fault_in(*options.start, options.on_divergence); !fault.empty())
      throw InvalidArgument{fmt::format("FitOptions::start {}; expected the state of a run", fault)};
  FitProgress& progress = FitProgress::of(store);
  const std::optional<FitProgress::Restored>& restored = progress.restored(store);
  if (!restored) return options.start.value_or(Observer::State{});

  const bool is_its_fit = restored->fits_before == progress.fits();
  if (options.start) {
    const auto steps = restored->state && is_its_fit ? steps_in(*restored->state) : std::nullopt;
    if (steps && *steps != options.start->steps)
      throw InvalidArgument{
          fmt::format("FitOptions::start has made {} steps, but the restored checkpoint {} has made {}; expected the "
                      "same number, or no start",
                      options.start->steps, restored->checkpoint, *steps)};
    return *options.start;
  }
  if (restored->state && is_its_fit) return state_in(*restored, options);
  if (restored->state)
    throw InvalidArgument{fmt::format(
        "the restored checkpoint {} was saved in call {} of fit, and this is call {}; expected FitOptions::start, "
        "which says how many steps this call has made",
        restored->checkpoint, restored->fits_before + 1, progress.fits() + 1)};
  if (restored->step == 0) return {};
  throw InvalidArgument{
      fmt::format("the restored checkpoint {} is of step {} and does not say where fit continues; expected "
                  "FitOptions::start, or load_weights for a new training that begins with its weights",
                  restored->checkpoint, restored->step)};
}

}  // namespace lockstep::detail
