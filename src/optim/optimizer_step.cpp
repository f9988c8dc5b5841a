#include "optim/optimizer_step.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
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
TensorView view_of(Numbers&& numbers) {
  constexpr DType type = std::is_same_v<std::ranges::range_value_t<Numbers>, double> ? DType::f64 : DType::i64;
  return {reinterpret_cast<std::byte*>(std::data(numbers)), {std::ssize(numbers)}, type};
}

}  // namespace

void Optimizer::AgreedStep::all_reduce(const TensorView& tensor) {
  inside_.sums.all_reduce(tensor);
}

void Optimizer::AgreedStep::ready(const Variable& variable) {
  inside_.ready(variable);
}

void Optimizer::AgreedStep::ready(const Variable& variable, IndexedSlices slices) {
  inside_.ready_rows(variable, std::move(slices));
}

void detail::require_samples(const Call& call, const Optimizer::StepSums& sums) {
  if (sums.samples < 0)
    throw InvalidArgument{fmt::format("{}{} samples; expected 0 or more", call.text(), sums.samples)};
  if (const double weight = weight_of(sums); !(weight >= 0) || std::isinf(weight))
    throw InvalidArgument{fmt::format("{}samples that weigh {}; expected a number from 0", call.text(), weight)};
}

Optimizer::StepOf::StepOf(Optimizer& optimizer, const Plan& plan, const Request& request, const How& how,
                          std::vector<IndexedSlices> slices)
    : optimizer_{optimizer},
      plan_{plan},
      request_{request},
      how_{how},
      slices_{std::move(slices)},
      has_slices_(slices_.size()) {}

SynchronousStep Optimizer::StepOf::phases(std::string agree) {
  SynchronousStep step{.agree = std::move(agree)};
  step.update = [this](const RankSums& sums) { update(sums); };
  if (is_reduced()) return step;
  rows_ = {plan_.rank(), plan_.ranks()};
  step.sum = [this](const RankSums& sums) { sum(sums); };
  step.decide = [this] { return decide(); };
  if (!is_computed()) {
    pack_rows();
    step.buckets = plan_.large_buckets();
    if (has_numbers() || !slices_.empty() || !request_.integers.empty()) step.count = [this] { return count(); };
    return step;
  }
  step.compute = [this](DeclaredSums& declared) { compute(declared); };
  step.sums = request_.computation.sums;
  step.buckets = plan_.buckets();
  step.label_of = [this](std::size_t piece) { return plan_.variable_of(piece).label(); };
  step.measure = [this] { measure(); };
  step.complete = [this] { complete(); };
  step.count = [this] { return count(); };
  return step;
}

void Optimizer::StepOf::compute(DeclaredSums& declared) {
  inside_.emplace(detail::ComputedStep{
      .sums = declared,
      .ready = [this](const Variable& variable) { ready(variable); },
      .ready_rows = [this](const Variable& variable, const IndexedSlices& slices) { ready(variable, slices); }});
  AgreedStep agreed = inside_->agreed();
  sums_ = request_.computation.compute(agreed);
  pack_rows();
}

void Optimizer::StepOf::ready(const Variable& variable) {
  const std::size_t number = plan_.number_of(variable);
  const Gradient::Value& gradient = request_.gradients[number].value;
  if (const IndexedSlices* const slices = gradient.slices()) return ready(variable, *slices);
  copy(gradient.view(), plan_.homes()[number], plan_.store().stream());
  if (!inside_->sums.ready(plan_.piece_of(number)))
    throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
}

void Optimizer::StepOf::ready(const Variable& variable, const IndexedSlices& slices) {
  const std::size_t number = plan_.number_of(variable);
  const std::size_t place = plan_.slices_of(number);
  if (std::exchange(has_slices_[place], 1))
    throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
  slices_[place] = plan_.slices_on_host({detail::apply_call}, number, slices);
}

/// When this rank's are complete.
void Optimizer::StepOf::pack_rows() {
  if (is_computed())
    if (const auto missing = std::ranges::find(has_slices_, 0); missing != has_slices_.end())
      throw InvalidArgument{
          fmt::format("the gradient of variable {} was never ready in this step",
                      plan_.sparse()[static_cast<std::size_t>(missing - has_slices_.begin())].label())};
  std::vector<DType> types;
  for (const IndexedSlices& each : slices_) types.push_back(each.values.dtype());
  rows_.pack(slices_, types);
}

/// Whether what is to be known of the sums is known before the ranks have counted. Rows travel later.
bool Optimizer::StepOf::measures_early() const {
  return is_computed() && slices_.empty();
}

/// On a GPU, the host could not wait for these at the end of the step.
bool Optimizer::StepOf::sums_statistics_first() const {
  return is_computed() && request_.statistics.count() > 0 && request_.statistics.device() != DeviceKind::cpu;
}

/// Beside the buckets.
void Optimizer::StepOf::sum(const RankSums& sums) {
  std::span<const TensorView> beside;
  if (sums_statistics_first()) beside = {&request_.statistics, 1};
  if (!is_computed()) beside = plan_.small_ranges();
  if (!beside.empty()) sums.make([&](CrossDeviceOps& reductions) { reductions.all_reduce(ReduceOp::sum, beside); });
}

void Optimizer::StepOf::measure() {
  if (!measures_early()) return;
  if (!plan_.is_shared() && !optimizer_.rules_.clip_norm && !inside_->keeps_norm) return;
  const BusyClock::During measuring{BusyClock::Part::optimizer};
  if (plan_.is_shared()) {
    plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
  } else {
    squares_ = detail::start_sum_of_squares(optimizer_.kernels_for(plan_), plan_.homes(), inside_->threads);
  }
}

void Optimizer::StepOf::complete() {
  if (inside_->complete) inside_->complete(sums_);
  detail::require_samples({detail::apply_call}, sums_);
}

/// The gradients are not among these, because an f64 beside an f64 range would turn that range into a packed copy.
std::vector<TensorView> Optimizer::StepOf::count() {
  if (is_computed()) BusyClock::enter(BusyClock::Part::optimizer);  // what comes after the wait
  if (request_.own && !is_computed()) sums_ = *request_.own;
  integers_ = {sums_.samples, sums_.correct};
  reals_ = {sums_.loss, weight_of(sums_)};
  std::vector<TensorView> views;
  if (has_numbers()) views = {view_of(integers_), view_of(reals_)};
  if (request_.statistics.count() > 0 && !sums_statistics_first()) views.push_back(request_.statistics);
  if (measures_early() && plan_.is_shared()) views.push_back(view_of(blocks_ = plan_.own_among_all()));
  if (request_.audit) views.push_back(view_of(request_.audit->impl_->integers()));
  views.push_back(view_of(request_.integers));
  if (!slices_.empty()) views.push_back(view_of(rows_.counts()));
  std::erase_if(views, [](const TensorView& view) { return view.count() == 0; });
  return views;
}

bool Optimizer::StepOf::decide() {
  if (has_numbers()) sums_ = {.samples = integers_[0], .loss = reals_[0], .correct = integers_[1], .weight = reals_[1]};
  if (request_.audit && !request_.audit->impl_->passes()) return false;
  return !request_.apply_only_if || request_.apply_only_if();
}

void Optimizer::StepOf::update(const RankSums& sums) {
  const std::vector<IndexedSlices> rows = summed_rows(sums);
  plan_.bring_home(rows);
  const bool updates_together = inside_ && inside_->threads && optimizer_.updates_by_element();
  step_and_send({.divisor = has_numbers() ? weight_of(sums_) : how_.divisor,
                 .squares = squares(sums),
                 .threads = updates_together ? &*inside_->threads : nullptr},
                rows, sums);
}

std::vector<IndexedSlices> Optimizer::StepOf::summed_rows(const RankSums& sums) {
  std::vector<IndexedSlices> summed;
  if (is_reduced()) {
    for (const IndexedSlices& each : slices_) summed.push_back(sum_rows({&each, 1}));
  } else if (!slices_.empty()) {
    for (const std::vector<IndexedSlices>& of_ranks : rows_.exchange(sums)) summed.push_back(sum_rows(of_ranks));
  }
  return summed;
}

/// The sum of the gradient's squares, if it is known. Of gradients of which each rank has its slices, no rank can add
/// them up later.
std::optional<double> Optimizer::StepOf::squares(const RankSums& sums) {
  if (squares_) return squares_->read();
  if (!plan_.is_shared()) return {};
  if (!measures_early()) {
    plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
    plan_.store().stream().synchronize();
    blocks_ = plan_.own_among_all();
    const TensorView view = view_of(blocks_);
    sums.make([&](CrossDeviceOps& reductions) { reductions.all_reduce(ReduceOp::sum, {&view, 1}); });
  }
  return ops::UpdateKernels::sum_of_blocks(std::move(blocks_));
}

/// Where one rank alone has updated variables, or a slice of them, the others get their values from it.
void Optimizer::StepOf::step_and_send(const Scale& scale, std::span<const IndexedSlices> rows, const RankSums& sums) {
  std::span<const Sliced> shared = scale.divisor != 0 ? plan_.gathers() : std::span<const Sliced>{};
  std::vector<Sliced> apart;
  if (is_reduced()) {  // their gradients stay
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
