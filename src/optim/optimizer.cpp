#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "optim/optimizer_guard.hpp"
#include "reduce/message_plan.hpp"
#include "strategy/context_stack.hpp"
#include "tensor/overlap.hpp"

namespace lockstep {
namespace {

constexpr std::string_view apply_call = "apply_gradients";

/// "'w' f32[2, 3], 'b' f32[3]": what the ranks compare.
std::string list_of(std::span<const Variable> variables) {
  if (variables.empty()) return "no variables";
  std::string list;
  for (const Variable& variable : variables)
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", variable.label(), name_of(variable.dtype()),
                        to_string(variable.shape()));
  return list;
}

/// The options that stay the same from step to step: ", momentum 0.9, weight decay 0.01".
std::string settings_of(const std::string& own, double weight_decay, std::optional<double> clip_norm) {
  std::string settings = own.empty() ? "" : ", " + own;
  if (weight_decay > 0) settings += fmt::format(", weight decay {}", weight_decay);
  if (clip_norm) settings += fmt::format(", norm up to {}", *clip_norm);
  return settings;
}

void require_applicable(const detail::Call& call, Strategy& strategy, const Variable& variable) {
  if (!strategy.extended().variable_created_in_scope(variable))
    throw InvalidArgument{
        fmt::format("{}variable {} was not created by {}", call.text(), variable.label(), strategy.name())};
  if (!variable.trainable())
    throw InvalidArgument{fmt::format("{}variable {} is not trainable", call.text(), variable.label())};
  if (variable.dtype() != DType::f32 && variable.dtype() != DType::f64)
    throw InvalidArgument{fmt::format("{}variable {} is {}{}; expected f32 or f64", call.text(), variable.label(),
                                      name_of(variable.dtype()), to_string(variable.shape()))};
}

void require_no_duplicates(const detail::Call& call, std::span<const Variable> variables) {
  std::vector<const Variable*> order;
  for (const Variable& variable : variables) order.push_back(&variable);
  const auto state = [](const Variable* variable) { return &variable->state(); };
  std::ranges::sort(order, std::less{}, state);
  if (const auto twice = std::ranges::adjacent_find(order, {}, state); twice != order.end())
    throw InvalidArgument{
        fmt::format("{}variable {} is given twice; add its gradients up", call.text(), (*twice)->label())};
}

double weight_of(const StepSums& sums) {
  return sums.weight ? *sums.weight : static_cast<double>(sums.samples);
}

/// One small message, with integers as integers. It does not include the gradients, because an f64 beside an f64 range
/// would turn that range into a packed copy. `failures` are this rank's on entry, and all ranks' on return.
void all_reduce(StepSums& sums, std::int64_t& failures, const TensorView& statistics, CrossDeviceOps& reductions) {
  std::array<std::int64_t, 3> integers{sums.samples, sums.correct, failures};
  const TensorView integer_view{reinterpret_cast<std::byte*>(integers.data()), {3}, DType::i64};
  std::array<double, 2> reals{sums.loss, weight_of(sums)};
  const TensorView real_view{reinterpret_cast<std::byte*>(reals.data()), {2}, DType::f64};
  std::vector<TensorView> views{integer_view, real_view};
  if (statistics.count() > 0) views.push_back(statistics);
  reductions.all_reduce(ReduceOp::sum, views);
  sums.samples = integers[0];
  sums.correct = integers[1];
  failures = integers[2];
  sums.loss = reals[0];
  sums.weight = reals[1];
}

void require_samples(const detail::Call& call, const StepSums& sums) {
  if (sums.samples < 0)
    throw InvalidArgument{fmt::format("{}{} samples; expected 0 or more", call.text(), sums.samples)};
  if (const double weight = weight_of(sums); !(weight >= 0) || std::isinf(weight))
    throw InvalidArgument{fmt::format("{}samples that weigh {}; expected a number from 0", call.text(), weight)};
}

/// Whether an optimizer decays some variables. Those are then updated separately from the others.
enum class Decay : std::uint8_t { none, some };

struct RangeUpdate {
  FlatRange range;
  bool decayed;
};

/// Matrices, filters and embeddings decay; biases, and what norms scale and shift by, do not.
bool is_decayed(const Variable& variable) {
  return variable.shape().size() >= 2;
}

}  // namespace

/// Everything that follows from the list of variables, checked.
class Optimizer::Plan {
 public:
  Plan(Strategy& strategy, std::span<const Gradient> gradients, Decay decay, const Here& here)
      : store_{&strategy.store()} {
    for (const Gradient& gradient : gradients) {
      require_applicable({apply_call, here}, strategy, gradient.variable);
      homes_.push_back(store_->gradient(gradient.variable, here));
      variables_.push_back(gradient.variable);
    }
    require_no_duplicates({apply_call, here}, variables_);
    ranges_ = store_->ranges(variables_, here);
    list_ = list_of(variables_);
    marked_list_ = fmt::format("{} variables (digest {}) {}", variables_.size(), to_hex(digest_of(list_)), list_);
    plan_pieces();
    plan_updates(decay);
  }

  bool is_for(Strategy& strategy, std::span<const Gradient> gradients) const {
    return store_ == &strategy.store() &&
           std::ranges::equal(
               gradients, variables_, {}, [](const Gradient& gradient) { return &gradient.variable.state(); },
               [](const Variable& variable) { return &variable.state(); });
  }

  void require_fit(const detail::Call& call, std::span<const Gradient> gradients) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const TensorView value = gradients[i].value.view();
      const TensorView& home = homes_[i];
      if (value.shape() != home.shape() || value.dtype() != home.dtype())
        throw InvalidArgument{fmt::format("{}variable {} is {}; its gradient is {}", call.text(), variables_[i].label(),
                                          describe(home), describe(value))};
      // Copying in the order of the list would read what an earlier copy overwrote.
      if (value.data() != home.data() &&
          std::ranges::any_of(ranges_, [&](const FlatRange& range) { return overlap(value, range.gradients); }))
        throw InvalidArgument{
            fmt::format("{}the gradient of variable {} lies in the store, but where another variable's belongs",
                        call.text(), variables_[i].label())};
    }
  }

  void bring_home(std::span<const Gradient> gradients) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) copy(gradients[i].value.view(), homes_[i], store_->stream());
  }

  /// The number of `variable` among the gradients in memory, which is brought there.
  std::size_t bring_home(const Variable& variable, std::span<const Gradient> gradients) const {
    const auto same = [&](const Variable& other) { return &other.state() == &variable.state(); };
    const auto found = std::ranges::find_if(variables_, same);
    if (found == variables_.end())
      throw InvalidArgument{fmt::format("the gradient of variable {} is no part of this step", variable.label())};
    const auto index = static_cast<std::size_t>(found - variables_.begin());
    copy(gradients[index].value.view(), homes_[index], store_->stream());
    return pieces_[index];
  }

  /// What travels as one message.
  std::vector<GradientBucket> buckets(const Packing& packing) const {
    std::vector<GradientBucket> buckets;
    std::size_t pieces = 0;
    for (std::size_t range = 0; range < ranges_.size(); ++range) {
      const TensorView& memory = ranges_[range].gradients;
      for (const detail::Bucket& each : detail::plan_buckets(packing, piece_counts_[range], size_of(memory.dtype())))
        buckets.push_back({memory.slice(each.first, each.count), pieces + each.tensors});
      pieces += piece_counts_[range].size();
    }
    return buckets;
  }

  const Variable& variable_of(std::size_t piece) const {
    return variables_[static_cast<std::size_t>(std::ranges::find(pieces_, piece) - pieces_.begin())];
  }

  VariableStore& store() const { return *store_; }
  std::span<const TensorView> homes() const { return homes_; }
  std::span<const FlatRange> ranges() const { return ranges_; }
  std::span<const RangeUpdate> updates() const { return updates_; }
  /// As much of it as a message has room for. A longer list begins with its length and its digest, so that a difference
  /// at its end still shows.
  const std::string& list(std::size_t room) const { return list_.size() <= room ? list_ : marked_list_; }

 private:
  /// Numbers the gradients in the order of memory, and measures each with the padding after it.
  void plan_pieces() {
    pieces_.resize(variables_.size());
    std::size_t number = 0;
    for (const FlatRange& range : ranges_) {
      std::vector<std::size_t> inside;
      for (std::size_t i = 0; i < homes_.size(); ++i)
        if (range.gradients.data() <= homes_[i].data() &&
            homes_[i].data() < range.gradients.data() + range.gradients.bytes())
          inside.push_back(i);
      const auto begin_of = [&](std::size_t i) { return homes_[i].data(); };
      std::ranges::sort(inside, {}, begin_of);
      const std::byte* const end = range.gradients.data() + range.gradients.bytes();
      auto& counts = piece_counts_.emplace_back();
      for (std::size_t i = 0; i < inside.size(); ++i) {
        pieces_[inside[i]] = number++;
        const std::byte* const next = i + 1 < inside.size() ? begin_of(inside[i + 1]) : end;
        counts.push_back((next - begin_of(inside[i])) / static_cast<std::int64_t>(size_of(range.gradients.dtype())));
      }
    }
  }

  void plan_updates(Decay decay) {
    const auto add = [&](std::span<const Variable> variables, bool decayed) {
      for (const FlatRange& range : store_->ranges(variables)) updates_.push_back({range, decayed});
    };
    if (decay == Decay::none) return add(variables_, false);
    std::vector<Variable> some = variables_;
    const auto others = std::ranges::stable_partition(some, is_decayed);
    const auto decayed = static_cast<std::size_t>(others.begin() - some.begin());
    add(std::span{some}.first(decayed), true);
    add(std::span{some}.subspan(decayed), false);
  }

  VariableStore* store_;
  std::vector<Variable> variables_;  ///< kept alive, so that no other variable can get the address of one of them
  std::vector<TensorView> homes_;    ///< their gradients in the store
  std::vector<FlatRange> ranges_;
  std::vector<std::size_t> pieces_;                      ///< the number of each in the order of memory
  std::vector<std::vector<std::int64_t>> piece_counts_;  ///< in each range
  std::vector<RangeUpdate> updates_;  ///< the same memory, cut so that each pass has one weight decay
  std::string list_, marked_list_;
};

std::vector<Gradient> gradients_in_store(const VariableStore& store, const VariableList& variables, Here here) {
  std::vector<Gradient> gradients;
  for (const Variable& variable : variables) {
    const TensorView home = store.gradient(variable, here);
    // The tensor owns the whole segment, as the variable does.
    gradients.push_back({Tensor{std::shared_ptr<const Buffer>{variable.state().segment, nullptr}, home}, variable});
  }
  return gradients;
}

Optimizer::Optimizer(Rules rules, std::shared_ptr<const ops::Kernels> kernels)
    : rules_{std::move(rules)}, counter_{rules_.name + "@steps"}, kernels_{std::move(kernels)} {
  // Written so that NaN fails.
  if (!(rules_.weight_decay >= 0) || std::isinf(rules_.weight_decay))
    throw InvalidArgument{fmt::format("the weight decay is {}; expected a number from 0", rules_.weight_decay)};
  if (rules_.clip_norm && (!(*rules_.clip_norm > 0) || std::isinf(*rules_.clip_norm)))
    throw InvalidArgument{
        fmt::format("the norm to clip gradients to is {}; expected a positive number", *rules_.clip_norm)};
  settings_ = settings_of(rules_.settings, rules_.weight_decay, rules_.clip_norm);
}

Optimizer::~Optimizer() = default;

void Optimizer::prepare(Strategy& strategy, const VariableList& variables, Here here) const {
  const std::vector<Variable> list{variables.begin(), variables.end()};
  for (const Variable& variable : list) require_applicable({"prepare", here}, strategy, variable);
  for (const FlatRange& range : strategy.store().ranges(list, here))
    for (const std::string_view slot : slots()) (void)range.slot(slot);
  (void)strategy.store().counter(counter_);
}

std::int64_t Optimizer::steps(Strategy& strategy) const {
  return strategy.store().counted(counter_);
}

const Optimizer::Plan& Optimizer::plan_for(Strategy& strategy, std::span<const Gradient> gradients, const Here& here) {
  const Decay decay = rules_.weight_decay > 0 ? Decay::some : Decay::none;
  if (!plan_ || !plan_->is_for(strategy, gradients))
    plan_ = std::make_shared<const Plan>(strategy, gradients, decay, here);
  return *plan_;
}

double Optimizer::gradient_norm() {
  if (!last_.plan) return 0;
  if (!last_.gradient_norm)
    last_.gradient_norm = std::sqrt(kernels_->sum_of_squares(last_.plan->homes())) / last_.divisor;
  return *last_.gradient_norm;
}

/// The factor by which to scale the gradient down. Every rank computes it from the same bytes, so nobody sends it.
double Optimizer::clip_factor() {
  if (!rules_.clip_norm) return 1;
  const double norm = gradient_norm();
  return norm > *rules_.clip_norm && std::isfinite(norm) ? *rules_.clip_norm / norm : 1;
}

/// With the plan of this call.
void Optimizer::step(double divisor) {
  const Plan& plan = *plan_;
  if (plan.ranges().empty() || divisor == 0) {
    last_.gradient_norm = 0;  // the memory no longer holds the sums of the last step
    return;
  }
  if (!kernels_) kernels_ = ops::make_kernels(ops::KernelChoice::automatic, {}, plan.store().stream());
  std::int64_t& made = plan.store().counter(counter_);
  last_ = {.plan = plan_, .learning_rate = rules_.learning_rate.at(made), .divisor = divisor};
  ops::UpdateStep step{
      .learning_rate = last_.learning_rate, .divisor = divisor, .factor = clip_factor(), .number = made + 1};
  for (const RangeUpdate& each : plan.updates()) {
    step.weight_decay = each.decayed ? rules_.weight_decay : 0;
    update(*kernels_, each.range, step);
  }
  ++made;
}

void AgreedStep::ready(const Variable& variable) {
  if (!sums_.ready(bring_(variable)))
    throw InvalidArgument{fmt::format("the gradient of variable {} was ready before", variable.label())};
}

void Optimizer::reduce_and_step(const Plan& plan, const Request& request, CrossDeviceOps& reductions) {
  StepSums* const sums = request.sums;
  // Host data first: a GPU then continues with its gradients while the host continues with the step.
  std::int64_t failures = 0;
  if (sums) all_reduce(*sums, failures, request.statistics, reductions);
  // Range by range, because each is one piece of memory and so is reduced in place.
  for (const FlatRange& range : plan.ranges()) reductions.all_reduce(ReduceOp::sum, {&range.gradients, 1});
  step(sums ? weight_of(*sums) : 1);
}

/// Lets the ranks compute what they have agreed on. If that fails here, takes part in the sums that the others wait
/// for.
void Optimizer::compute_and_step(const Plan& plan, const Request& request, CrossDeviceOps& reductions,
                                 MeetingPoint::Covered& covered) {
  StepSums& sums = *request.sums;
  Stream& stream = plan.store().stream();
  const std::vector<GradientBucket> buckets = plan.buckets(reductions.packing());
  DeclaredSums declared{reductions, request.computation->sums, stream, buckets, &covered};
  std::exception_ptr failure;
  try {
    AgreedStep step{[&](const Variable& variable) { return plan.bring_home(variable, request.gradients); }, declared};
    sums = request.computation->compute(step);
    covered.require_no_agreement();
    declared.require_all_made();
    if (const auto piece = declared.first_unready())
      throw InvalidArgument{
          fmt::format("the gradient of variable {} was never ready in this step", plan.variable_of(*piece).label())};
    require_samples({apply_call}, sums);
  } catch (...) {
    failure = std::current_exception();
    sums = {};
    declared.make_the_rest();
  }
  declared.finish();
  // The host's plane and a GPU's never move tensors at the same time.
  stream.synchronize();
  std::int64_t failures = failure ? 1 : 0;
  covered.wait_in([&] { all_reduce(sums, failures, request.statistics, reductions); });
  if (failure) std::rethrow_exception(failure);
  if (failures > 0) {
    sums = {};
    return;
  }
  step(weight_of(sums));
}

void Optimizer::apply(ReplicaContext& context, const Request& request, const Here& here) {
  const detail::Call call{apply_call, here};
  detail::require_current(context, call);
  detail::OptimizerGuard::require_step_allowed(context);
  if (request.sums) require_samples(call, *request.sums);
  const Plan& plan = plan_for(context.strategy(), request.gradients, here);
  plan.require_fit(call, request.gradients);
  context.strategy().require_not_captured(here);  // before the copies, which a graph would record
  if (!request.computation) plan.bring_home(request.gradients);

  std::string how = request.sums ? "apply_gradients by samples" : "apply_gradients";
  if (request.statistics.count() > 0) how += fmt::format(" with {} statistics", request.statistics.count());
  if (request.computation) how += ", agreed first";
  if (request.computation && !request.computation->sums.counts.empty())
    how += fmt::format(", with {}", describe(request.computation->sums));
  const std::int64_t steps = plan.store().counted(counter_);
  std::string batch =
      fmt::format("step {} at rate {}{}: {}: ", steps + 1, rules_.learning_rate.at(steps), settings_, how);
  batch += plan.list(Tag::text_capacity - std::min(batch.size(), Tag::text_capacity));
  if (request.computation)
    return context.declared_step(
        batch,
        [&](CrossDeviceOps& reductions, MeetingPoint::Covered& covered) {
          compute_and_step(plan, request, reductions, covered);
        },
        here);
  context.declared_merge(
      batch, [&](CrossDeviceOps& reductions) { reduce_and_step(plan, request, reductions); }, here);
}

}  // namespace lockstep
