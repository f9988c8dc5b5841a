#include <cmath>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/tensor/inside.hpp"
#include "sync/optim/live_optimizers.hpp"
#include "sync/optim/plan.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

/// The options that stay the same from step to step: ", momentum 0.9, weight decay 0.01".
std::string settings_of(const std::string& own, double weight_decay, std::optional<double> clip_norm) {
  std::string settings = own.empty() ? "" : ", " + own;
  if (weight_decay > 0) settings += fmt::format(", weight decay {}", weight_decay);
  if (clip_norm) settings += fmt::format(", norm up to {}", *clip_norm);
  return settings;
}

}  // namespace

std::vector<Optimizer::Gradient> Optimizer::gradients_in_store(const VariableStore& store,
                                                               const detail::VariableList& variables, Here here) {
  std::vector<Optimizer::Gradient> gradients;
  for (const Variable& variable : variables) {
    const TensorView home = store.gradient(variable, here);
    // The tensor owns the whole segment, as the variable does.
    gradients.push_back(
        {tensor_in(std::shared_ptr<const Buffer>{inside(variable).state().segment, nullptr}, home), variable});
  }
  return gradients;
}

Optimizer::Optimizer(Rules rules, std::shared_ptr<const Kernels> kernels)
    : rules_{std::move(rules)}, places_{std::make_unique<Places>(rules_.name)}, kernels_{std::move(kernels)} {
  // Written so that NaN fails.
  if (!(rules_.weight_decay >= 0) || std::isinf(rules_.weight_decay))
    throw InvalidArgument{fmt::format("the weight decay is {}; expected a number from 0", rules_.weight_decay)};
  if (rules_.clip_norm && (!(*rules_.clip_norm > 0) || std::isinf(*rules_.clip_norm)))
    throw InvalidArgument{
        fmt::format("the norm to clip gradients to is {}; expected a positive number", *rules_.clip_norm)};
  settings_ = settings_of(rules_.settings, rules_.weight_decay, rules_.clip_norm);
}

Optimizer::~Optimizer() = default;

void Optimizer::prepare(Strategy& strategy, const detail::VariableList& variables, Here here) const {
  const detail::Call call{"prepare", here};
  const std::vector<Variable> list{variables.begin(), variables.end()};
  for (const Variable& variable : list) detail::require_applicable(call, strategy, variable);
  const std::vector<VariableStore::FlatRange> ranges = strategy.store().ranges(list, here);
  require_shareable(ranges, call);
  places_->enter(strategy.store(), call);
  places_->keep(strategy.store(), list, slots(), call);
  for (const VariableStore::FlatRange& range : ranges) prepare_slots(range, strategy.rank());
  (void)strategy.store().counter(places_->counter_in(strategy.store()));
}

/// Makes the slots of `range`, or notes what another rank makes.
void Optimizer::prepare_slots(const VariableStore::FlatRange& range, int rank) const {
  for (const std::string_view slot : slots()) range.make_slot(slot, rank);
}

void Optimizer::require_shareable(std::span<const VariableStore::FlatRange> ranges, const detail::Call& call) const {
  if (updates_by_element()) return;
  for (const VariableStore::FlatRange& range : ranges)
    if (range.segment->slices)
      throw InvalidArgument{call.text() +
                            "the strategy shares the work of optimizers in slices (shard_optimizer), and this "
                            "optimizer does not say that it updates element by element (updates_by_element)"};
}

std::int64_t Optimizer::steps(Strategy& strategy) const {
  return strategy.store().counted(places_->counter_in(strategy.store()));
}

const Optimizer::Plan& Optimizer::plan_for(Strategy& strategy, std::span<const Optimizer::Gradient> gradients,
                                           const detail::Call& call) {
  if (plan_ && plan_->is_for(strategy, gradients)) return *plan_;
  auto plan = std::make_shared<const Plan>(*this, strategy, gradients, *call.here);
  require_shareable(plan->shared_ranges(), call);
  places_->keep(strategy.store(), plan->variables(), slots(), call);
  plan_ = std::move(plan);
  return *plan_;
}

}  // namespace lockstep
