#include "apps/lockstep-train/saved/checkpoint_observer.hpp"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/fit/fit_start.hpp"
#include "sync/checkpoint/checkpoint_folder.hpp"
#include "sync/checkpoint/checkpoint_reading.hpp"

namespace lockstep {
namespace {

const std::string fit_state_name = "fit";

}  // namespace

CheckpointObserver::CheckpointObserver(RunRecord& record, CheckpointManager& checkpoints, Options options)
    : record_{record}, checkpoints_{checkpoints}, options_{std::move(options)} {}

void CheckpointObserver::on_evaluation(const Observer::Evaluation& report) {
  if (options_.keep_best) loss_ = report.loss;
  record_.on_evaluation(report);
}

void CheckpointObserver::on_step_end(const Observer::State& state) {
  const std::optional<double> loss = std::exchange(loss_, std::nullopt);
  const bool is_best = loss && checkpoints_.is_best(*loss);
  if (checkpoints_.is_due(state.steps) || state.steps == options_.steps || is_best)
    save(state, loss);
  else
    checkpoints_.report_failure();
  record_.on_step_end(state);
}

void CheckpointObserver::on_stop(const Observer::State& state) {
  if (saved_ != state.steps) save(state, {});
  checkpoints_.finish();
  try {
    record_.on_stop(state);
  } catch (const CheckpointError& error) {
    const auto checkpoint = options_.folder / checkpoint_name(state.steps);
    if (is_gone(checkpoint)) throw;  // it is optional, or went with the folder of the run
    throw CheckpointError{
        fmt::format("{}; stopped after step {}, as a signal asked, and {} is complete: to go on, give "
                    "the same command with --resume auto",
                    error.what(), state.steps, checkpoint.string())};
  }
}

void CheckpointObserver::save(const Observer::State& state, std::optional<double> loss) {
  const auto before = std::chrono::steady_clock::now();
  checkpoints_.save(state.steps, program_state_of(state), loss);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - before;
  record_.checkpoint(state.steps, waited.count(), options_.folder / checkpoint_name(state.steps));
  saved_ = state.steps;
}

ProgramState program_state_of(const Observer::State& state) {
  return {{fit_state_name, state.to_text()}};
}

Observer::State fit_state_of(const CheckpointManager::Resumed& resumed, FitOptions::OnDivergence on_divergence) {
  const auto state = resumed.state.find(fit_state_name);
  if (state == resumed.state.end()) throw Error{fmt::format("has no state \"{}\" of its training", fit_state_name)};
  Observer::State fit = Observer::State::parse(state->second);
  if (fit.steps != resumed.step)
    throw Error{fmt::format("is of step {}, and its state of step {}", resumed.step, fit.steps)};
  if (const std::string fault = detail::fault_in(fit, on_divergence); !fault.empty())
    throw Error{fmt::format("has a state of its training that {}", fault)};
  return fit;
}

}  // namespace lockstep
