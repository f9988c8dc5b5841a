#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep {
namespace {

// What a tag keeps of a text in clear, less what stands around the list of variables.
constexpr std::size_t readable_list = Tag::text_capacity - 40;

/// "'w' f32[2, 3], 'b' f32[3]": what the ranks compare. A long list begins with its number and its digest, so
/// that what differs at its end still shows in a message.
std::string list_of(std::span<const Variable> variables) {
  if (variables.empty()) return "no variables";
  std::string list;
  for (const Variable& variable : variables)
    list += fmt::format("{}{} {}{}", list.empty() ? "" : ", ", variable.label(), name_of(variable.dtype()),
                        to_string(variable.shape()));
  if (list.size() <= readable_list) return list;
  return fmt::format("{} variables (digest {}) {}", variables.size(), to_hex(digest_of(list)), list);
}

void require_applicable(Strategy& strategy, const Variable& variable) {
  if (!strategy.extended().variable_created_in_scope(variable))
    throw InvalidArgument{
        fmt::format("apply_gradients: variable {} was not created by {}", variable.label(), strategy.name())};
  if (!variable.trainable())
    throw InvalidArgument{fmt::format("apply_gradients: variable {} is not trainable", variable.label())};
  if (variable.dtype() != DType::f32 && variable.dtype() != DType::f64)
    throw InvalidArgument{fmt::format("apply_gradients: variable {} is {}{}; expected f32 or f64", variable.label(),
                                      name_of(variable.dtype()), to_string(variable.shape()))};
}

void require_no_duplicates(std::span<const Variable> variables) {
  std::vector<const Variable*> order;
  for (const Variable& variable : variables) order.push_back(&variable);
  const auto state = [](const Variable* variable) { return &variable->state(); };
  std::ranges::sort(order, std::less{}, state);
  if (const auto twice = std::ranges::adjacent_find(order, {}, state); twice != order.end())
    throw InvalidArgument{
        fmt::format("apply_gradients: variable {} is given twice; add its gradients up", (*twice)->label())};
}

bool overlap(const TensorView& a, const TensorView& b) {
  // std::less orders pointers into different allocations; the operators need not.
  const std::less<const std::byte*> before;
  return before(a.data(), b.data() + b.bytes()) && before(b.data(), a.data() + a.bytes());
}

/// One small message, the integers as integers. Not together with the gradients: an f64 beside an f64 range would make
/// that range a packed copy.
void all_reduce(StepSums& sums, CrossDeviceOps& reductions) {
  std::array<std::int64_t, 2> integers{sums.samples, sums.correct};
  const TensorView integer_view{reinterpret_cast<std::byte*>(integers.data()), {2}, DType::i64};
  const TensorView loss_view{reinterpret_cast<std::byte*>(&sums.loss), {1}, DType::f64};
  reductions.all_reduce(ReduceOp::sum, std::array{integer_view, loss_view});
  sums.samples = integers[0];
  sums.correct = integers[1];
}

}  // namespace

/// All that follows from the list of variables, checked.
class Optimizer::Plan {
 public:
  Plan(Strategy& strategy, std::span<const Gradient> gradients) : store_{&strategy.store()} {
    for (const Gradient& gradient : gradients) {
      require_applicable(strategy, gradient.variable);
      homes_.push_back(store_->gradient(gradient.variable));
      variables_.push_back(gradient.variable);
    }
    require_no_duplicates(variables_);
    ranges_ = store_->ranges(variables_);
    list_ = list_of(variables_);
  }

  bool is_for(Strategy& strategy, std::span<const Gradient> gradients) const {
    return store_ == &strategy.store() &&
           std::ranges::equal(
               gradients, variables_, {}, [](const Gradient& gradient) { return &gradient.variable.state(); },
               [](const Variable& variable) { return &variable.state(); });
  }

  void require_fit(std::span<const Gradient> gradients) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const TensorView value = gradients[i].value.view();
      const TensorView& home = homes_[i];
      if (value.shape() != home.shape() || value.dtype() != home.dtype())
        throw InvalidArgument{fmt::format("apply_gradients: variable {} is {}; its gradient is {}",
                                          variables_[i].label(), describe(home), describe(value))};
      // Copies made in the order of the list would read what an earlier one wrote.
      if (value.data() != home.data() &&
          std::ranges::any_of(ranges_, [&](const FlatRange& range) { return overlap(value, range.gradients); }))
        throw InvalidArgument{
            fmt::format("apply_gradients: the gradient of variable {} lies in the store, but where another "
                        "variable's belongs",
                        variables_[i].label())};
    }
  }

  void bring_home(std::span<const Gradient> gradients) const {
    for (std::size_t i = 0; i < gradients.size(); ++i) copy(gradients[i].value.view(), homes_[i], store_->stream());
  }

  std::span<const FlatRange> ranges() const { return ranges_; }
  const std::string& list() const { return list_; }

 private:
  const VariableStore* store_;
  std::vector<Variable> variables_;  ///< kept alive: so no other variable can have the address of one of them
  std::vector<TensorView> homes_;    ///< their gradients in the store
  std::vector<FlatRange> ranges_;
  std::string list_;
};

std::vector<Gradient> gradients_in_store(const VariableStore& store, const VariableList& variables) {
  std::vector<Gradient> gradients;
  for (const Variable& variable : variables) {
    const TensorView home = store.gradient(variable);
    // The tensor owns the whole segment, as the variable does.
    gradients.push_back({Tensor{std::shared_ptr<const Buffer>{variable.state().segment, nullptr}, home}, variable});
  }
  return gradients;
}

Optimizer::Optimizer() = default;
Optimizer::~Optimizer() = default;

const Optimizer::Plan& Optimizer::plan_for(Strategy& strategy, std::span<const Gradient> gradients) {
  if (!plan_ || !plan_->is_for(strategy, gradients)) plan_ = std::make_unique<const Plan>(strategy, gradients);
  return *plan_;
}

void Optimizer::apply(ReplicaContext& context, std::span<const Gradient> gradients, StepSums* sums, const Here& here) {
  (void)context.replica_id_in_sync_group();  // ContextError unless the context is the current one
  if (sums && sums->samples < 0)
    throw InvalidArgument{fmt::format("apply_gradients: {} samples; expected 0 or more", sums->samples)};
  const Plan& plan = plan_for(context.strategy(), gradients);
  plan.require_fit(gradients);
  context.strategy().require_not_captured();  // before the copies, which a graph would record
  plan.bring_home(gradients);

  const std::string_view how = sums ? "apply_gradients by samples: " : "apply_gradients: ";
  context.declared_merge(
      fmt::format("{}{}", how, plan.list()),
      [&](CrossDeviceOps& reductions) {
        // What is on the host first: a GPU goes on with its gradients while the host goes on with the step.
        if (sums) all_reduce(*sums, reductions);
        // Range by range: each is one piece of memory, and so is reduced where it lies.
        for (const FlatRange& range : plan.ranges()) reductions.all_reduce(ReduceOp::sum, {&range.gradients, 1});
        if (sums && sums->samples == 0) return;
        const double divisor = sums ? static_cast<double>(sums->samples) : 1;
        for (const FlatRange& range : plan.ranges()) update(range, divisor);
      },
      here);
}

}  // namespace lockstep
