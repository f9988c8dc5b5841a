#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "control/busy_clock.hpp"
#include "control/meeting_point.hpp"
#include "device/device.hpp"
#include "group/replica_group.hpp"
#include "ops/answer.hpp"
#include "ops/update_kernels.hpp"
#include "optim/audit.hpp"
#include "optim/live_optimizers.hpp"
#include "optim/optimizer_guard.hpp"
#include "optim/parts_of_threads.hpp"
#include "optim/plan.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/declared_sums.hpp"
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

/// The options that stay the same from step to step: ", momentum 0.9, weight decay 0.01".
std::string settings_of(const std::string& own, double weight_decay, std::optional<double> clip_norm) {
  std::string settings = own.empty() ? "" : ", " + own;
  if (weight_decay > 0) settings += fmt::format(", weight decay {}", weight_decay);
  if (clip_norm) settings += fmt::format(", norm up to {}", *clip_norm);
  return settings;
}

double weight_of(const Optimizer::StepSums& sums) {
  return sums.weight ? *sums.weight : static_cast<double>(sums.samples);
}

TensorView view_of(std::vector<double>& numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), {std::ssize(numbers)}, DType::f64};
}

/// What only some steps add up.
struct MoreSums {
  std::vector<double> blocks;        ///< of squares; each is another rank's or zero
  std::span<std::int64_t> integers;  ///< Computation::integers
};

/// One message, small but for `more`, with integers as integers. It does not include the gradients, because an f64
/// beside an f64 range would turn that range into a packed copy. All are this rank's on entry, and all ranks' on
/// return.
void all_reduce(Optimizer::StepSums& sums, std::int64_t& failures, const TensorView& statistics, MoreSums& more,
                CrossDeviceOps& reductions) {
  std::array<std::int64_t, 3> integers{sums.samples, sums.correct, failures};
  const TensorView integer_view{reinterpret_cast<std::byte*>(integers.data()), {3}, DType::i64};
  std::array<double, 2> reals{sums.loss, weight_of(sums)};
  const TensorView real_view{reinterpret_cast<std::byte*>(reals.data()), {2}, DType::f64};
  std::vector<TensorView> views{integer_view, real_view};
  if (statistics.count() > 0) views.push_back(statistics);
  if (!more.blocks.empty()) views.push_back(view_of(more.blocks));
  if (!more.integers.empty())
    views.push_back({reinterpret_cast<std::byte*>(more.integers.data()), {std::ssize(more.integers)}, DType::i64});
  reductions.all_reduce(ReduceOp::sum, views);
  sums.samples = integers[0];
  sums.correct = integers[1];
  failures = integers[2];
  sums.loss = reals[0];
  sums.weight = reals[1];
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

void require_samples(const detail::Call& call, const Optimizer::StepSums& sums) {
  if (sums.samples < 0)
    throw InvalidArgument{fmt::format("{}{} samples; expected 0 or more", call.text(), sums.samples)};
  if (const double weight = weight_of(sums); !(weight >= 0) || std::isinf(weight))
    throw InvalidArgument{fmt::format("{}samples that weigh {}; expected a number from 0", call.text(), weight)};
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

/// Where one rank alone has updated variables, or a slice of them, the others get their values from it. A rank waits
/// for those under `covered`, if that is given.
void Optimizer::step_and_send(const Scale& scale, std::span<const detail::RowSums> rows, CrossDeviceOps& reductions,
                              Covered* covered) {
  const Plan& plan = *plan_;
  std::span<const Sliced> shared = scale.divisor != 0 ? plan.gathers() : std::span<const Sliced>{};
  std::vector<Sliced> apart;
  if (scale.keeps_gradients) {
    for (const Sliced& each : shared) apart.push_back({each.memory, each.slices});
    shared = apart;
  }
  if (plan.held_values().empty() && shared.empty()) return step(scale, rows);
  std::exception_ptr failure;
  try {
    step(scale, rows);
  } catch (...) {
    failure = std::current_exception();  // the others wait for what this rank holds
  }
  const auto send = [&] {
    for (const auto& [holder, values] : plan.held_values()) reductions.broadcast(values, holder);
    if (!shared.empty()) reductions.gather_slices(shared);
  };
  covered ? covered->wait_in(send) : send();
  for (const detail::RangeUpdate& each : plan.updates())
    if (!each.range.is_held_by(plan.rank())) each.range.values_changed();
  if (!shared.empty())
    for (const VariableStore::FlatRange& range : plan.shared_ranges()) range.values_changed();
  if (failure) std::rethrow_exception(failure);
}

void Optimizer::AgreedStep::all_reduce(const TensorView& tensor) {
  sums_.all_reduce(tensor);
}

void Optimizer::AgreedStep::ready(const Variable& variable) {
  if (!sums_.ready(bring_(variable)))
    throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
}

void Optimizer::reduce_and_step(const Plan& plan, const Request& request, std::vector<IndexedSlices>& slices,
                                CrossDeviceOps& reductions) {
  StepSums* const sums = request.sums;
  // Host data first: a GPU then continues with its gradients while the host continues with the step.
  std::int64_t failures = 0;
  MoreSums more;
  if (request.audit) more.integers = request.audit->impl_->integers();
  if (sums) all_reduce(*sums, failures, request.statistics, more, reductions);
  if (request.audit && !request.audit->impl_->passes()) return;
  if (!slices.empty()) reductions.all_reduce(ReduceOp::sum, std::span{slices});
  const std::vector<detail::RowSums> rows = plan.bring_home(slices);
  if (!plan.small_ranges().empty()) reductions.all_reduce(ReduceOp::sum, plan.small_ranges());
  // In the messages of a computation's step: compressed, if gradients are.
  for (const GradientBucket& bucket : plan.large_buckets()) bucket.start(reductions).wait();
  step_and_send({sums ? weight_of(*sums) : request.divisor, sum_of_squares(plan, reductions)}, rows, reductions);
}

/// Of gradients of which each rank has its slices: no rank can add them up later. Nothing if every rank has all.
std::optional<double> Optimizer::sum_of_squares(const Plan& plan, CrossDeviceOps& reductions) {
  if (!plan.is_shared()) return {};
  plan.sum_own_blocks(kernels_for(plan));
  plan.store().stream().synchronize();
  std::vector<double> blocks = plan.own_among_all();
  const TensorView view = view_of(blocks);
  reductions.all_reduce(ReduceOp::sum, {&view, 1});
  return ops::UpdateKernels::sum_of_blocks(std::move(blocks));
}

/// Lets the ranks compute what they have agreed on. If that fails here, takes part in the sums that the others wait
/// for. The host waits for a GPU once: before the last sum, which says whether a rank failed, and so whether there is
/// an update.
void Optimizer::compute_and_step(const Plan& plan, const Request& request, ReplicaGroup& group,
                                 CrossDeviceOps& reductions, Covered& covered) {
  StepSums& sums = *request.sums;
  Stream& stream = plan.store().stream();
  DeclaredSums declared{reductions, request.computation->sums, stream, plan.buckets(), &covered};
  AgreedStep step{[&](const Variable& variable) { return plan.bring_home(variable, request.gradients); }, declared,
                  request.computation->integers};
  std::exception_ptr failure;
  try {
    sums = request.computation->compute(step);
    covered.require_no_agreement();
    declared.require_all_made();
    if (const auto piece = declared.first_unready())
      throw InvalidArgument{
          fmt::format("the gradient of variable {} was never ready in this step", plan.variable_of(*piece).label())};
  } catch (...) {
    failure = std::current_exception();
    group.job().see_through([&] { declared.make_the_rest(); });
  }
  std::optional<ops::Answer<double>> squares;
  // On a GPU: the ranks could not agree on the end of the step before the host has waited for this sum.
  const bool sums_statistics_first = request.statistics.count() > 0 && request.statistics.device() != DeviceKind::cpu;
  // The host's plane and a GPU's never move tensors at the same time.
  group.job().see_through([&] {
    {
      const BusyClock::Waiting for_all;  // one wait, however many sums
      declared.finish();
      if (sums_statistics_first)
        covered.wait_in([&] { reductions.all_reduce(ReduceOp::sum, {&request.statistics, 1}); });
    }
    if (plan.is_shared()) {
      const BusyClock::During measuring{BusyClock::Part::optimizer};
      plan.sum_own_blocks(kernels_for(plan));
    } else if (rules_.clip_norm || step.keeps_norm_) {
      const BusyClock::During measuring{BusyClock::Part::optimizer};
      squares = detail::start_sum_of_squares(kernels_for(plan), plan.homes(), step.threads_);
    }
    stream.synchronize();
  });
  try {
    if (!failure && step.complete_) step.complete_(sums);
    if (!failure) require_samples({detail::apply_call}, sums);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) sums = {};
  std::int64_t failures = failure ? 1 : 0;
  MoreSums more{plan.is_shared() ? plan.own_among_all() : std::vector<double>{}, step.integers_};
  covered.wait_in([&] {
    BusyClock::enter(BusyClock::Part::optimizer);  // what comes after the wait
    all_reduce(sums, failures, sums_statistics_first ? TensorView{} : request.statistics, more, reductions);
  });
  if (failure) std::rethrow_exception(failure);
  if (failures > 0 || (step.allows_ && !step.allows_(more.integers))) {
    sums = {};
    return;
  }
  std::optional<double> known;
  if (squares) known = squares->read();
  if (plan.is_shared()) known = ops::UpdateKernels::sum_of_blocks(std::move(more.blocks));
  const AgreedStep::Threads* const threads = step.threads_ && updates_by_element() ? &*step.threads_ : nullptr;
  step_and_send({.divisor = weight_of(sums), .squares = known, .threads = threads}, {}, reductions, &covered);
}

/// What the ranks compare of a step: "step 3 of 'critic' at rate 0.1, momentum 0.9: apply_gradients by samples: …".
std::string Optimizer::text_of(const Plan& plan, const Request& request, std::string_view call) const {
  std::string how{call};
  if (request.sums) how += " by samples";
  if (request.divisor != 1) how += fmt::format(" by {:g}", request.divisor);
  if (request.statistics.count() > 0) how += fmt::format(" with {} statistics", request.statistics.count());
  if (request.computation) how += ", agreed first";
  if (request.computation && !request.computation->sums.counts.empty())
    how += fmt::format(", with {}", describe(request.computation->sums));
  if (request.computation && request.computation->integers > 0)
    how += fmt::format(", with {} integers", request.computation->integers);
  if (request.audit) how += request.audit->impl_->text();
  if (!request.what_follows.empty()) how += fmt::format(", then {}", request.what_follows);
  const std::string name = places_->name_in(plan.store());
  const std::int64_t steps = plan.store().counted(detail::step_counter(name));
  std::string text = fmt::format("step {} of '{}' at rate {}{}: {}: ", steps + 1, name, rate_at(steps), settings_, how);
  text += plan.list(Tag::text_capacity - std::min(text.size(), Tag::text_capacity));
  return text;
}

void Optimizer::apply(ReplicaContext& context, const Request& request, const Here& here) {
  const bool reduced = request.reduction == Reduction::done;
  const detail::Call call{reduced ? "apply_reduced_gradients" : detail::apply_call, here};
  detail::require_current(context, call);
  detail::OptimizerGuard::require_step_allowed(context);
  require_in_run(call, context, request.gradients);
  // Before anything that fails on this rank alone, so that the ranks agree on the order of first uses.
  places_->enter(context.strategy().store(), call);
  if (request.sums) require_samples(call, *request.sums);
  const Plan& plan = plan_for(context.strategy(), request.gradients, call);
  plan.require_fit(call, request.gradients);
  if (request.computation) plan.require_dense(call);
  context.strategy().store().bring_values_home();
  context.strategy().require_not_captured(here);  // before the copies, which a graph would record
  std::vector<IndexedSlices> slices = plan.slices_on_host(call, request.gradients);
  if (!request.computation) plan.bring_home(request.gradients);
  if (request.audit) {
    if (request.audit->impl_->is_turn()) own_copies(slices);
    request.audit->impl_->compute_other();
  }
  kernels_for(plan);  // the rate depends on them
  const std::string batch = text_of(plan, request, call.name);
  detail::FirstStepNotes* const first_step = context.first_step();
  if (first_step && reduced) note_given(*first_step, request.gradients);
  const std::int64_t made = first_step ? steps(context.strategy()) : 0;
  if (request.computation) {
    context.declared_step(
        batch,
        [&](CrossDeviceOps& reductions, Covered& covered) {
          compute_and_step(plan, request, context.strategy().group(), reductions, covered);
        },
        here);
  } else {
    context.declared_merge(
        batch,
        [&](CrossDeviceOps& reductions) {
          if (reduced) {
            const std::vector<detail::RowSums> rows = plan.bring_home(slices);
            const std::optional<double> squares = sum_of_squares(plan, reductions);
            return step_and_send({.squares = squares, .keeps_gradients = true}, rows, reductions);
          }
          reduce_and_step(plan, request, slices, reductions);
        },
        here);
  }
  if (first_step && steps(context.strategy()) > made) {
    first_step->made_step = true;
    if (!reduced)
      for (const Variable& variable : plan.variables()) first_step->summed.push_back(&variable.state());
  }
  if (request.audit) request.audit->impl_->end_step(context, here);
}

}  // namespace lockstep
