#include "optim/optimizer_step.hpp"

#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "control/busy_clock.hpp"
#include "ops/update_kernels.hpp"
#include "optim/audit.hpp"
#include "optim/parts_of_threads.hpp"
#include "optim/plan.hpp"
#include "reduce/cross_device_ops.hpp"

namespace lockstep {
namespace {

double weight_of(const Optimizer::StepSums& sums) {
  return sums.weight ? *sums.weight : static_cast<double>(sums.samples);
}

template <class Numbers>
TensorView view_of(Numbers& numbers) {
  constexpr DType type = std::is_same_v<std::ranges::range_value_t<Numbers>, double> ? DType::f64 : DType::i64;
  return {reinterpret_cast<std::byte*>(std::data(numbers)), {std::ssize(numbers)}, type};
}

}  // namespace

void Optimizer::AgreedStep::all_reduce(const TensorView& tensor) {
  sums_.all_reduce(tensor);
}

void Optimizer::AgreedStep::ready(const Variable& variable) {
  if (!sums_.ready(bring_(variable)))
    throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
}

void detail::require_samples(const Call& call, const Optimizer::StepSums& sums) {
  if (sums.samples < 0)
    throw InvalidArgument{fmt::format("{}{} samples; expected 0 or more", call.text(), sums.samples)};
  if (const double weight = weight_of(sums); !(weight >= 0) || std::isinf(weight))
    throw InvalidArgument{fmt::format("{}samples that weigh {}; expected a number from 0", call.text(), weight)};
}

Optimizer::StepOf::StepOf(Optimizer& optimizer, const Plan& plan, const Request& request,
                          std::vector<IndexedSlices> slices)
    : optimizer_{optimizer}, plan_{plan}, request_{request}, slices_{std::move(slices)} {}

SynchronousStep Optimizer::StepOf::phases(std::string agree) {
  SynchronousStep step{.agree = std::move(agree)};
  step.update = [this](const RankSums& sums) { update(sums); };
  if (request_.reduction == Reduction::done) return step;
  step.buckets = request_.computation ? plan_.buckets() : plan_.large_buckets();
  step.sum = [this](const RankSums& sums) { sum(sums); };
  if (!request_.sums) return step;
  step.count = [this] { return count(); };
  step.decide = [this] { return decide(); };
  if (!request_.computation) return step;
  step.compute = [this](DeclaredSums& declared) { compute(declared); };
  step.sums = request_.computation->sums;
  step.label_of = [this](std::size_t piece) { return plan_.variable_of(piece).label(); };
  step.measure = [this] { measure(); };
  step.complete = [this] { complete(); };
  return step;
}

void Optimizer::StepOf::compute(DeclaredSums& declared) {
  const auto bring = [this](const Variable& variable) { return plan_.bring_home(variable, request_.gradients); };
  agreed_.emplace(AgreedStep{bring, declared, request_.computation->integers});
  *request_.sums = request_.computation->compute(*agreed_);
}

/// On a GPU, the host could not wait for these at the end of the step.
bool Optimizer::StepOf::sums_statistics_first() const {
  return request_.computation && request_.statistics.count() > 0 && request_.statistics.device() != DeviceKind::cpu;
}

/// Beside the buckets.
void Optimizer::StepOf::sum(const RankSums& sums) {
  std::span<const TensorView> beside;
  if (sums_statistics_first()) beside = {&request_.statistics, 1};
  if (!request_.computation) beside = plan_.small_ranges();
  if (!beside.empty()) sums.make([&](CrossDeviceOps& reductions) { reductions.all_reduce(ReduceOp::sum, beside); });
}

void Optimizer::StepOf::measure() {
  if (!plan_.is_shared() && !optimizer_.rules_.clip_norm && !agreed_->keeps_norm_) return;
  const BusyClock::During measuring{BusyClock::Part::optimizer};
  if (plan_.is_shared()) {
    plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
  } else {
    squares_ = detail::start_sum_of_squares(optimizer_.kernels_for(plan_), plan_.homes(), agreed_->threads_);
  }
}

void Optimizer::StepOf::complete() {
  if (agreed_->complete_) agreed_->complete_(*request_.sums);
  detail::require_samples({detail::apply_call}, *request_.sums);
}

/// The gradients are not among these, because an f64 beside an f64 range would turn that range into a packed copy.
std::vector<TensorView> Optimizer::StepOf::count() {
  if (request_.computation) BusyClock::enter(BusyClock::Part::optimizer);  // what comes after the wait
  const Optimizer::StepSums& own = *request_.sums;
  integers_ = {own.samples, own.correct};
  reals_ = {own.loss, weight_of(own)};
  std::vector<TensorView> views{view_of(integers_), view_of(reals_)};
  if (request_.statistics.count() > 0 && !sums_statistics_first()) views.push_back(request_.statistics);
  if (request_.computation && plan_.is_shared()) blocks_ = plan_.own_among_all();
  if (!blocks_.empty()) views.push_back(view_of(blocks_));
  std::span<std::int64_t> more = request_.audit ? request_.audit->impl_->integers() : std::span<std::int64_t>{};
  if (agreed_) more = agreed_->integers_;
  if (!more.empty()) views.push_back(view_of(more));
  return views;
}

bool Optimizer::StepOf::decide() {
  *request_.sums = {.samples = integers_[0], .loss = reals_[0], .correct = integers_[1], .weight = reals_[1]};
  if (request_.audit && !request_.audit->impl_->passes()) return false;
  return !agreed_ || !agreed_->allows_ || agreed_->allows_(agreed_->integers_);
}

void Optimizer::StepOf::update(const RankSums& sums) {
  if (request_.reduction == Reduction::in_step && !slices_.empty())
    sums.make([&](CrossDeviceOps& reductions) { reductions.all_reduce(ReduceOp::sum, std::span{slices_}); });
  const std::vector<detail::RowSums> rows = plan_.bring_home(slices_);
  const bool updates_together = agreed_ && agreed_->threads_ && optimizer_.updates_by_element();
  step_and_send({.divisor = request_.sums ? weight_of(*request_.sums) : request_.divisor,
                 .squares = squares(sums),
                 .keeps_gradients = request_.reduction == Reduction::done,
                 .threads = updates_together ? &*agreed_->threads_ : nullptr},
                rows, sums);
}

/// The sum of the gradient's squares, if it is known. Of gradients of which each rank has its slices, no rank can add
/// them up later.
std::optional<double> Optimizer::StepOf::squares(const RankSums& sums) {
  if (squares_) return squares_->read();
  if (!plan_.is_shared()) return {};
  if (!request_.computation) {
    plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
    plan_.store().stream().synchronize();
    blocks_ = plan_.own_among_all();
    const TensorView view = view_of(blocks_);
    sums.make([&](CrossDeviceOps& reductions) { reductions.all_reduce(ReduceOp::sum, {&view, 1}); });
  }
  return ops::UpdateKernels::sum_of_blocks(std::move(blocks_));
}

/// Where one rank alone has updated variables, or a slice of them, the others get their values from it.
void Optimizer::StepOf::step_and_send(const Scale& scale, std::span<const detail::RowSums> rows, const RankSums& sums) {
  std::span<const Sliced> shared = scale.divisor != 0 ? plan_.gathers() : std::span<const Sliced>{};
  std::vector<Sliced> apart;
  if (scale.keeps_gradients) {
    for (const Sliced& each : shared) apart.push_back({each.memory, each.slices});
    shared = apart;
  }
  if (plan_.held_values().empty() && shared.empty()) return optimizer_.step(scale, rows);
  std::exception_ptr failure;
  try {
    optimizer_.step(scale, rows);
  } catch (...) {
    failure = std::current_exception();  // the others wait for what this rank holds
  }
  sums.make([&](CrossDeviceOps& reductions) {
    for (const auto& [holder, values] : plan_.held_values()) reductions.broadcast(values, holder);
    if (!shared.empty()) reductions.gather_slices(shared);
  });
  for (const detail::RangeUpdate& each : plan_.updates())
    if (!each.range.is_held_by(plan_.rank())) each.range.values_changed();
  if (!shared.empty())
    for (const VariableStore::FlatRange& range : plan_.shared_ranges()) range.values_changed();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep
