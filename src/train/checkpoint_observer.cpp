#include "train/checkpoint_observer.hpp"

#include <string>
#include <utility>

namespace lockstep {
namespace {

const std::string fit_state_name = "fit";

}  // namespace

CheckpointObserver::CheckpointObserver(Observer& reports, CheckpointManager& checkpoints, Options options)
    : reports_{reports}, checkpoints_{checkpoints}, options_{options} {}

void CheckpointObserver::on_evaluation(const EvaluationReport& report) {
  if (options_.keep_best) loss_ = report.loss;
  reports_.on_evaluation(report);
}

void CheckpointObserver::on_step_end(const FitState& state) {
  const std::optional<double> loss = std::exchange(loss_, std::nullopt);
  const bool is_best = loss && checkpoints_.is_best(*loss);
  if (checkpoints_.is_due(state.steps) || state.steps == options_.steps || is_best)
    save(state, loss);
  else
    checkpoints_.report_failure();
}

void CheckpointObserver::on_stop(const FitState& state) {
  if (saved_ != state.steps) save(state, {});
}

void CheckpointObserver::save(const FitState& state, std::optional<double> loss) {
  checkpoints_.save(state.steps, {{fit_state_name, to_text(state)}}, loss);
  saved_ = state.steps;
}

FitState fit_state_of(const ResumedTraining& resumed) {
  const auto state = resumed.state.find(fit_state_name);
  return state == resumed.state.end() ? FitState{.steps = resumed.step} : parse_fit_state(state->second);
}

}  // namespace lockstep
