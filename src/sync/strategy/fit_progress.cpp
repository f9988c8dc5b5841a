#include "sync/strategy/fit_progress.hpp"

#include <fmt/format.h>

#include "sync/strategy/inside.hpp"
#include "sync/strategy/step_counter.hpp"

namespace lockstep::detail {

FitProgress& FitProgress::of(VariableStore& store) {
  std::shared_ptr<FitProgress>& progress = inside(store).fit_progress();
  if (!progress) progress = std::make_shared<FitProgress>();
  return *progress;
}

std::int64_t FitProgress::optimizer_steps(VariableStore& store) {
  const std::string counter = step_counter("");
  std::int64_t steps = 0;
  for (const detail::OptimizerState& state : inside(store).optimizer_state())
    if (state.name.ends_with(counter)) steps += store.counted(state.name);
  return steps;
}

std::map<std::string, std::string> FitProgress::saved() const {
  std::map<std::string, std::string> saved;
  if (!state_) return saved;
  saved.emplace(state_name, state_());
  if (fits_ > 1) saved.emplace(fits_before_name, fmt::format("{}", fits_ - 1));
  return saved;
}

const std::optional<FitProgress::Restored>& FitProgress::restored(VariableStore& store) {
  if (restored_ && restored_->optimizer_steps != optimizer_steps(store)) restored_.reset();
  return restored_;
}

FitProgress::Underway::Underway(FitProgress& progress, std::function<std::string()> state) : progress_{progress} {
  if (progress_.restored_ && progress_.fits_ >= progress_.restored_->fits_before) progress_.restored_.reset();
  ++progress_.fits_;
  progress_.state_ = std::move(state);
}

FitProgress::Underway::~Underway() {
  progress_.state_ = [last = progress_.state_()] { return last; };
}

}  // namespace lockstep::detail
