// Steps of optimizers: a call of apply_gradients on this rank, as the phases of a step.
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <iterator>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/optimizer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/busy_clock.hpp"
#include "core/control/tag.hpp"
#include "core/device/answer.hpp"
#include "core/tensor/digest.hpp"
#include "sync/optim/audit.hpp"
#include "sync/optim/computed_step.hpp"
#include "sync/optim/live_optimizers.hpp"
#include "sync/optim/optimizer_guard.hpp"
#include "sync/optim/parts_of_threads.hpp"
#include "sync/optim/plan.hpp"
#include "sync/reduce/declared_sums.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/step/rows.hpp"
#include "sync/step/synchronous_step.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/first_steps.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/strategy_core.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep {
namespace {

double weight_of(const Optimizer::StepSums& sums) {
  return sums.weight ? *sums.weight : static_cast<double>(sums.samples);
}

template <class Numbers>
TensorView view_of(Numbers&& numbers) {
  return {reinterpret_cast<std::byte*>(std::data(numbers)),
          {std::ssize(numbers)},
          detail::dtype_of<std::ranges::range_value_t<Numbers>>};
}

/// InvalidArgument for another strategy's variables in the context that is current outside of every run.
void require_in_run(const detail::Call& call, const ReplicaContext& context,
                    std::span<const Optimizer::Gradient> gradients) {
  if (!detail::is_default(context)) return;
  for (const Optimizer::Gradient& each : gradients)
    if (!inside(context.strategy()).created(each.variable))
      throw InvalidArgument{fmt::format(
          "{}the context is the default strategy's, as ReplicaContext::current() is outside of every run, and variable "
          "{} belongs to {}: call it inside of strategy.run(), with the context that run passes",
          call.text(), each.variable.label(), detail::strategy_of(each.variable, call).name())};
}

std::string_view call_of(const auto& how) {
  return how.reduction == decltype(how.reduction)::done ? "apply_reduced_gradients" : detail::apply_call;
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

/// InvalidArgument unless there may be so many shards.
void require_shards(const detail::Call& call, int shards, std::optional<int> audited, int ranks) {
  if (shards < 0) throw InvalidArgument{fmt::format("{}{} shards; expected 0 or more", call.text(), shards)};
  if (shards > 0 && shards < ranks)
    throw InvalidArgument{fmt::format("{}{} shard{} for {} ranks; expected one for each or more", call.text(), shards,
                                      shards == 1 ? "" : "s", ranks)};
  if (shards > 0 && audited && shards != *audited)
    throw InvalidArgument{
        fmt::format("{}{} shards, and an audit of {}; expected the same", call.text(), shards, *audited)};
}

/// InvalidArgument unless a rank may bring these numbers to a step.
void require_samples(const detail::Call& call, const Optimizer::StepSums& sums) {
  if (sums.samples < 0)
    throw InvalidArgument{fmt::format("{}{} samples; expected 0 or more", call.text(), sums.samples)};
  if (const double weight = weight_of(sums); !(weight >= 0) || std::isinf(weight))
    throw InvalidArgument{fmt::format("{}samples that weigh {}; expected a number from 0", call.text(), weight)};
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

/// A call of apply_gradients on this rank, as the phases of a step.
class Optimizer::StepOf {
 public:
  /// `slices` are the gradients of this rank that are. `subtrees` may be null. All other arguments must outlive this
  /// object.
  StepOf(Optimizer& optimizer, const Plan& plan, const Request& request, const How& how,
         std::vector<IndexedSlices> slices, const Subtrees* subtrees)
      : optimizer_{optimizer},
        plan_{plan},
        request_{request},
        how_{how},
        slices_{std::move(slices)},
        has_slices_(slices_.size()),
        subtrees_{subtrees} {}

  StepOf(const StepOf&) = delete;

  /// Of how many shards the ranks bring the sums; 0 if each has a part of its own.
  static int shards_of(const Request& request) {
    return request.audit ? request.audit->impl_->shards() : request.shards;
  }

  /// The ranks' numbers, once they are counted and the step was applied.
  const Optimizer::StepSums& sums() const { return sums_; }

  /// `agree` is what the ranks compare. Refers to this object.
  SynchronousStep phases(std::string agree) {
    SynchronousStep step{.agree = std::move(agree), .shards = shards_of(request_)};
    step.update = [this](const RankSums& sums) { update(sums); };
    if (is_reduced()) return step;
    rows_ = {plan_.rank(), plan_.ranks()};
    step.sum = [this](const RankSums& sums) { sum(sums); };
    step.decide = [this] { return decide(); };
    if (!is_computed()) {
      pack_rows();
      step.buckets = plan_.large_buckets();
      step.count = [this] { return count(); };
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

 private:
  bool is_computed() const { return static_cast<bool>(request_.computation.compute); }
  bool is_reduced() const { return how_.reduction == How::Reduction::done; }
  bool has_numbers() const { return is_computed() || request_.own; }

  void compute(DeclaredSums& declared) {
    inside_.emplace(detail::ComputedStep{
        .sums = declared,
        .ready = [this](const Variable& variable) { ready(variable); },
        .ready_rows = [this](const Variable& variable, const IndexedSlices& slices) { ready(variable, slices); }});
    AgreedStep agreed = inside_->agreed();
    sums_ = request_.computation.compute(agreed);
    pack_rows();
    if (request_.audit) request_.audit->impl_->compute_other();
  }

  void ready(const Variable& variable) {
    const std::size_t number = plan_.number_of(variable);
    const Gradient::Value& gradient = request_.gradients[number].value;
    if (const IndexedSlices* const slices = gradient.slices()) return ready(variable, *slices);
    copy(gradient.view(), plan_.homes()[number], plan_.store().stream());
    if (!inside_->sums.ready(plan_.piece_of(number)))
      throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
  }

  void ready(const Variable& variable, const IndexedSlices& slices) {
    const std::size_t number = plan_.number_of(variable);
    const std::size_t place = plan_.slices_of(number);
    if (std::exchange(has_slices_[place], 1))
      throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
    slices_[place] = plan_.slices_on_host({detail::apply_call}, number, slices);
  }

  /// When this rank's are complete.
  void pack_rows() {
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
  bool measures_early() const { return is_computed() && slices_.empty(); }

  /// On a GPU, the host could not wait for these at the end of the step.
  bool sums_statistics_first() const {
    return is_computed() && request_.statistics.count() > 0 && request_.statistics.device() != DeviceKind::cpu;
  }

  /// Beside the buckets.
  void sum(const RankSums& sums) {
    std::span<const TensorView> beside;
    if (sums_statistics_first()) beside = {&request_.statistics, 1};
    if (!is_computed()) beside = plan_.small_ranges();
    if (!beside.empty()) sums.make([&](Reductions& reductions) { reductions.all_reduce(ReduceOp::sum, beside); });
  }

  void measure() {
    if (!measures_early()) return;
    if (!plan_.is_shared() && !optimizer_.rules_.clip_norm && !inside_->keeps_norm) return;
    const BusyClock::During measuring{BusyClock::Part::optimizer};
    if (plan_.is_shared()) {
      plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
    } else {
      squares_ = detail::start_sum_of_squares(optimizer_.kernels_for(plan_), plan_.homes(), inside_->threads);
    }
  }

  void complete() {
    if (inside_->complete) inside_->complete(sums_);
    if (!subtrees_ && !inside_->subtrees.empty()) {
      sums_.loss = inside_->subtrees.front().loss;
      sums_.weight = inside_->subtrees.front().weight;
    }
    require_samples({detail::apply_call}, sums_);
  }

  /// The gradients are not among these, because an f64 beside an f64 range would turn that range into a packed copy.
  std::vector<TensorView> count() {
    if (is_computed()) BusyClock::enter(BusyClock::Part::optimizer);  // what comes after the wait
    if (request_.own && !is_computed()) sums_ = *request_.own;
    integers_ = {sums_.samples, sums_.correct};
    reals_ = {sums_.loss, weight_of(sums_)};
    std::vector<TensorView> views;
    if (has_numbers()) views.push_back(view_of(integers_));
    if (subtrees_) {
      place_numbers(views);
    } else {
      if (has_numbers()) views.push_back(view_of(reals_));
      if (request_.statistics.count() > 0 && !sums_statistics_first()) views.push_back(request_.statistics);
    }
    if (measures_early() && plan_.is_shared()) views.push_back(view_of(blocks_ = plan_.own_among_all()));
    if (request_.audit) views.push_back(view_of(request_.audit->impl_->integers()));
    views.push_back(view_of(request_.integers));
    if (!slices_.empty()) views.push_back(view_of(rows_.counts()));
    std::erase_if(views, [](const TensorView& view) { return view.count() == 0; });
    return views;
  }

  void place_numbers(std::vector<TensorView>& views) {
    const auto place = [&](std::optional<PlacedSum>& sum, const TensorView& like) {
      sum.emplace(subtrees_->shares(), subtrees_->rank(), like.dtype(), like.count());
      views.push_back(sum->integers().view());
    };
    place(placed_reals_, view_of(reals_));
    place(placed_statistics_, request_.statistics);
    if (!inside_) return;
    for (std::size_t number = 0; number < inside_->subtrees.size(); ++number) {
      const auto& [loss, weight, statistics] = inside_->subtrees[number];
      std::ranges::copy(std::array{loss, weight}, placed_reals_->of_own(number).elements<double>().begin());
      copy(statistics, placed_statistics_->of_own(number), Stream::host());
    }
  }

  bool decide() {
    if (placed_reals_) {
      placed_reals_->finish(view_of(reals_));
      placed_statistics_->finish(request_.statistics);
    }
    if (has_numbers())
      sums_ = {.samples = integers_[0], .loss = reals_[0], .correct = integers_[1], .weight = reals_[1]};
    if (request_.audit && !request_.audit->impl_->passes()) return false;
    return !request_.apply_only_if || request_.apply_only_if();
  }

  void update(const RankSums& sums) {
    const std::vector<IndexedSlices> rows = summed_rows(sums);
    plan_.bring_home(rows);
    const bool updates_together = inside_ && inside_->threads && optimizer_.updates_by_element();
    step_and_send({.divisor = has_numbers() ? weight_of(sums_) : how_.divisor,
                   .squares = squares(sums),
                   .threads = updates_together ? &*inside_->threads : nullptr},
                  rows, sums);
  }

  std::vector<IndexedSlices> summed_rows(const RankSums& sums) {
    std::vector<IndexedSlices> summed;
    if (is_reduced()) {
      for (const IndexedSlices& each : slices_) summed.push_back(sum_rows({&each, 1}));
    } else if (!slices_.empty()) {
      for (const std::vector<IndexedSlices>& of_ranks : rows_.exchange(sums)) summed.push_back(sum_rows(of_ranks));
    }
    return summed;
  }

  /// The sum of the gradient's squares, if it is known. Where each rank has its slices, no rank can add them up later.
  std::optional<double> squares(const RankSums& sums) {
    if (squares_) return squares_->read();
    if (!plan_.is_shared()) return {};
    if (!measures_early()) {
      plan_.sum_own_blocks(optimizer_.kernels_for(plan_));
      plan_.store().stream().synchronize();
      blocks_ = plan_.own_among_all();
      const TensorView view = view_of(blocks_);
      sums.make([&](Reductions& reductions) { reductions.all_reduce(ReduceOp::sum, {&view, 1}); });
    }
    return detail::UpdateKernels::sum_of_blocks(std::move(blocks_));
  }

  /// Where one rank alone has updated variables, or a slice of them, the others get their values from it.
  void step_and_send(const Scale& scale, std::span<const IndexedSlices> rows, const RankSums& sums) {
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
    sums.make([&](Reductions& reductions) {
      for (const auto& [holder, values] : plan_.held_values()) reductions.broadcast(values, holder);
      if (!shared.empty()) reductions.gather_slices(shared);
    });
    for (const detail::RangeUpdate& each : plan_.updates())
      if (!each.range.is_held_by(plan_.rank())) each.range.values_changed();
    if (!shared.empty())
      for (const VariableStore::FlatRange& range : plan_.shared_ranges()) range.values_changed();
    if (failure) std::rethrow_exception(failure);
  }

  Optimizer& optimizer_;
  const Plan& plan_;
  const Request& request_;
  const How& how_;
  std::vector<IndexedSlices> slices_;
  std::vector<char> has_slices_;                   ///< of a computation: those that were ready
  RowExchange rows_;                               ///< of these
  std::optional<detail::ComputedStep> inside_;     ///< while there is something to compute, and after it
  std::optional<detail::Answer<double>> squares_;  ///< of the sums, if they are measured before the ranks have counted

  // What is counted.
  Optimizer::StepSums sums_;
  std::array<std::int64_t, 2> integers_{};
  std::array<double, 2> reals_{};
  std::vector<double> blocks_;  ///< of squares; each is another rank's or zero

  const Subtrees* subtrees_;  ///< null unless ranks have several
  std::optional<PlacedSum> placed_reals_, placed_statistics_;
};

/// What the ranks compare of a step: "step 3 of 'critic' at rate 0.1, momentum 0.9: apply_gradients by samples: …".
std::string Optimizer::text_of(const Plan& plan, const Request& request, const How& how) const {
  std::string text{call_of(how)};
  const bool is_computed = static_cast<bool>(request.computation.compute);
  if (is_computed || request.own) text += " by samples";
  if (how.divisor != 1) text += fmt::format(" by {:g}", how.divisor);
  if (request.statistics.count() > 0)
    text += fmt::format(" with {} {} statistics", request.statistics.count(), name_of(request.statistics.dtype()));
  if (const int shards = StepOf::shards_of(request); shards > 0) text += fmt::format(", of {} shards", shards);
  if (is_computed) text += ", agreed first";
  if (const auto& sums = request.computation.sums; !sums.counts.empty())
    text += fmt::format(", with {}", describe(sums));
  if (!request.integers.empty()) text += fmt::format(", with {} integers", request.integers.size());
  if (request.apply_only_if) text += ", on a condition";
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
  require_shards(call, request.shards,
                 request.audit ? std::optional{request.audit->impl_->shards()} : std::optional<int>{},
                 context.num_replicas_in_sync());
  if (request.own) require_samples(call, *request.own);
  if (is_computed && request.own)
    throw InvalidArgument{call.text() +
                          "numbers of this rank, and a computation, which returns them; expected one of the two"};
  const Plan& plan = plan_for(context.strategy(), request.gradients, call);
  plan.require_fit(call, request.gradients);
  inside(context.strategy().store()).bring_values_home();
  inside(context.strategy()).require_not_captured(here);  // before the copies, which a graph would record
  std::vector<IndexedSlices> slices = plan.slices_on_host(call, request.gradients);
  if (!is_computed) plan.bring_home(request.gradients);
  if (request.audit && !is_computed) {
    if (request.audit->impl_->is_turn()) own_copies(slices);
    request.audit->impl_->compute_other();
  }
  detail::FirstStepNotes* const first_step = inside(context).first_step();
  if (first_step && is_reduced) note_given(*first_step, request.gradients);
  const std::int64_t made = first_step ? steps(context.strategy()) : 0;
  StepOf step{*this, plan, request, how, std::move(slices), inside(context.strategy()).reductions().subtrees()};
  SynchronousStep phases = step.phases(text_of(plan, request, how));
  if (request.audit) phases.audit = [&] { request.audit->impl_->end_step(context, here); };
  const bool is_applied = make_step(context, phases, here);
  if (first_step && steps(context.strategy()) > made) {
    first_step->made_step = true;
    if (!is_reduced)
      for (const Variable& variable : plan.variables()) first_step->summed.push_back(&inside(variable).state());
  }
  return is_applied ? step.sums() : StepSums{};
}

}  // namespace lockstep
