#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "control/tag.hpp"
#include "optim/audit.hpp"
#include "optim/live_optimizers.hpp"
#include "optim/optimizer_guard.hpp"
#include "optim/optimizer_step.hpp"
#include "optim/plan.hpp"
#include "reduce/declared_sums.hpp"
#include "step/synchronous_step.hpp"
#include "strategy/defaults.hpp"
#include "strategy/first_steps.hpp"
#include "strategy/step_counter.hpp"
#include "strategy/strategy_core.hpp"
#include "tensor/digest.hpp"

namespace lockstep {
namespace {

/// InvalidArgument for another strategy's variables in the context that is current outside of every run.
void require_in_run(const detail::Call& call, const ReplicaContext& context,
                    std::span<const Optimizer::Gradient> gradients) {
  if (!detail::is_default(context)) return;
  for (const Optimizer::Gradient& each : gradients)
    if (!context.strategy().extended().variable_created_in_scope(each.variable))
      throw InvalidArgument{fmt::format(
          "{}the context is the default strategy's, as ReplicaContext::current() is outside of every run, and variable "
          "{} belongs to {}: call it inside of strategy.run(), with the context that run passes",
          call.text(), each.variable.label(), detail::strategy_of(each.variable, call).name())};
}

std::string_view call_of(const auto& how) {
  return how.reduction == decltype(how.reduction)::done ? "apply_reduced_gradients" : detail::apply_call;
}

/// The options that stay the same from step to step: ", momentum 0.9, weight decay 0.01".
std::string settings_of(const std::string& own, double weight_decay, std::optional<double> clip_norm) {
  std::string settings = own.empty() ? "" : ", " + own;
  if (weight_decay > 0) settings += fmt::format(", weight decay {}", weight_decay);
  if (clip_norm) settings += fmt::format(", norm up to {}", *clip_norm);
  return settings;
}

/// Slices that stay as they are when the program writes to its own.
void own_copies(std::vector<IndexedSlices>& slices) {
  for (IndexedSlices& each : slices)
    each = {Tensor::on_host(each.values.view()), Tensor::on_host(each.indices.view()), each.dense_shape};
}

/// Of gradients that all ranks should have.
void note_given(detail::FirstStepNotes& notes, std::span<const Optimizer::Gradient> gradients) {
  for (const Optimizer::Gradient& each : gradients) {
    const IndexedSlices* const slices = each.value.slices();
    const std::uint64_t digest =
        slices ? detail::digest_of_elements(slices->values.view()) ^ detail::digest_of_elements(slices->indices.view())
               : detail::digest_of_elements(each.value.view());
    notes.given.push_back({fmt::format("variable {}", each.variable.label()), digest});
  }
}

/// InvalidArgument for numbers that a rank cannot bring, and for what a step cannot be asked for.
void require_one_way(const detail::Call& call, const Optimizer::Request& request) {
  if (request.own) detail::require_samples(call, *request.own);
  if (!request.computation.compute) return;
  if (request.own)
    throw InvalidArgument{call.text() +
                          "numbers of this rank, and a computation, which returns them; expected one of the two"};
  if (request.audit)
    throw InvalidArgument{
        call.text() +
        "an audit of a step whose gradients are computed after the agreement: expected gradients that are ready"};
}

}  // namespace

std::vector<Optimizer::Gradient> Optimizer::gradients_in_store(const VariableStore& store,
                                                               const detail::VariableList& variables, Here here) {
  std::vector<Optimizer::Gradient> gradients;
  for (const Variable& variable : variables) {
    const TensorView home = store.gradient(variable, here);
    // The tensor owns the whole segment, as the variable does.
    gradients.push_back({Tensor{std::shared_ptr<const Buffer>{variable.state().segment, nullptr}, home}, variable});
  }
  return gradients;
}

Optimizer::Optimizer(Rules rules, std::shared_ptr<const ops::Kernels> kernels)
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
  using detail::Decay;
  const Decay decay = rules_.weight_decay > 0 ? Decay::some : Decay::none;
  const auto at_zero = keeps_zero_gradients() ? detail::AtZero::nothing : detail::AtZero::something;
  const auto state = slots().empty() ? detail::Slots::none : detail::Slots::some;
  auto plan = std::make_shared<const Plan>(strategy, gradients, decay, at_zero, state, *call.here);
  require_shareable(plan->shared_ranges(), call);
  places_->keep(strategy.store(), plan->variables(), slots(), call);
  plan_ = std::move(plan);
  return *plan_;
}

/// What the ranks compare of a step: "step 3 of 'critic' at rate 0.1, momentum 0.9: apply_gradients by samples: …".
std::string Optimizer::text_of(const Plan& plan, const Request& request, const How& how) const {
  std::string text{call_of(how)};
  const bool is_computed = static_cast<bool>(request.computation.compute);
  if (is_computed || request.own) text += " by samples";
  if (how.divisor != 1) text += fmt::format(" by {:g}", how.divisor);
  if (request.statistics.count() > 0) text += fmt::format(" with {} statistics", request.statistics.count());
  if (is_computed) text += ", agreed first";
  if (const auto& sums = request.computation.sums; !sums.counts.empty())
    text += fmt::format(", with {}", describe(sums));
  if (!request.integers.empty()) text += fmt::format(", with {} integers", request.integers.size());
  if (request.audit) text += request.audit->impl_->text();
  if (!how.what_follows.empty()) text += fmt::format(", then {}", how.what_follows);
  const std::string name = places_->name_in(plan.store());
  const std::int64_t steps = plan.store().counted(detail::step_counter(name));
  text = fmt::format("step {} of '{}' at rate {}{}: {}: ", steps + 1, name, rate_at(steps), settings_, text);
  return text + plan.list(Tag::text_capacity - std::min(text.size(), Tag::text_capacity));
}

Optimizer::StepSums Optimizer::apply_gradients(ReplicaContext& context, const Request& request, Here here) {
  return apply(context, request, {}, here);
}

void Optimizer::apply_reduced(ReplicaContext& context, std::span<const Gradient> gradients, const Here& here) {
  apply(context, {.gradients = gradients}, {.reduction = How::Reduction::done}, here);
}

Optimizer::StepSums Optimizer::apply(ReplicaContext& context, const Request& request, const How& how,
                                     const Here& here) {
  const bool is_reduced = how.reduction == How::Reduction::done;
  const bool is_computed = static_cast<bool>(request.computation.compute);
  const detail::Call call{call_of(how), here};
  detail::require_current(context, call);
  detail::OptimizerGuard::require_step_allowed(context);
  require_in_run(call, context, request.gradients);
  // Before anything that fails on this rank alone, so that the ranks agree on the order of first uses.
  places_->enter(context.strategy().store(), call);
  require_one_way(call, request);
  const Plan& plan = plan_for(context.strategy(), request.gradients, call);
  plan.require_fit(call, request.gradients);
  context.strategy().store().bring_values_home();
  context.strategy().require_not_captured(here);  // before the copies, which a graph would record
  std::vector<IndexedSlices> slices = plan.slices_on_host(call, request.gradients);
  if (!is_computed) plan.bring_home(request.gradients);
  if (request.audit) {
    if (request.audit->impl_->is_turn()) own_copies(slices);
    request.audit->impl_->compute_other();
  }
  kernels_for(plan);  // the rate depends on them
  detail::FirstStepNotes* const first_step = context.first_step();
  if (first_step && is_reduced) note_given(*first_step, request.gradients);
  const std::int64_t made = first_step ? steps(context.strategy()) : 0;
  StepOf step{*this, plan, request, how, std::move(slices)};
  SynchronousStep phases = step.phases(text_of(plan, request, how));
  if (request.audit) phases.audit = [&] { request.audit->impl_->end_step(context, here); };
  const bool is_applied = make_step(context, phases, here);
  if (first_step && steps(context.strategy()) > made) {
    first_step->made_step = true;
    if (!is_reduced)
      for (const Variable& variable : plan.variables()) first_step->summed.push_back(&variable.state());
  }
  return is_applied ? step.sums() : StepSums{};
}

}  // namespace lockstep
