#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/torch/replicated_optimizer.hpp>

#include "core/base/digest.hpp"
#include "core/base/site.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/tag.hpp"
#include "core/values/type_text.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/external_values.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/optimizer_kinds.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

/// A tensor of a parameter's state, or zeros in the place of one that torch has not made.
struct HeldSlot {
  std::string name;  ///< "fc.weight@exp_avg"
  std::string_view slot;
  at::Tensor value;
};

/// A parameter that the optimizer trains.
struct HeldParameter {
  at::Tensor tensor;
  std::string name;
  std::size_t group;
  std::int64_t has_state = 0;  ///< a StateLayout
  std::int64_t steps = 0;
  bool counts_steps = false;
  std::vector<HeldSlot> slots = {};
};

/// The momentum of sparse gradients is sparse. It is saved as a dense tensor, and goes on as it was.
enum StateLayout : std::int64_t { no_state, dense_state, sparse_state };

/// An option of a group.
struct HeldOption {
  std::string name;  ///< "fc.weight@adamw.lr"
  double value = 0;
};

template <class T>
TensorView scalar_view(T& value) {
  return {reinterpret_cast<std::byte*>(&value), {}, lockstep::detail::dtype_of<T>};
}

}  // namespace

class ReplicatedOptimizer::State final : public lockstep::detail::ExternalValues {
 public:
  State(VariableStore& store, const std::vector<ReplicatedModule::Impl*>& modules, ::torch::optim::Optimizer& optimizer,
        const Here& here);

  void bring_values_home() override {}
  void bring_state_home() override;
  std::vector<lockstep::detail::OptimizerState> state() override;
  void take_over() override;

  /// What the ranks compare.
  std::string text();

 private:
  void hold(const at::Tensor& tensor, std::size_t group, const std::map<const void*, Variable>& variables);
  void require_held_alone(VariableStore& store) const;
  void require_same_parameters() const;
  void look_at(HeldParameter& parameter);
  std::string description() const;

  ::torch::optim::Optimizer& optimizer_;
  const OptimizerKind& kind_;
  std::string class_;  ///< "torch::optim::AdamW"
  std::string site_;   ///< where it was made
  DeviceKind device_kind_;
  std::unique_ptr<TorchDevice> device_;
  std::vector<HeldParameter> parameters_;         ///< in the order of the groups
  std::vector<std::vector<HeldOption>> options_;  ///< by group; none for one without parameters
};

ReplicatedOptimizer::State::State(VariableStore& store, const std::vector<ReplicatedModule::Impl*>& modules,
                                  ::torch::optim::Optimizer& optimizer, const Here& here)
    : optimizer_{optimizer},
      kind_{kind_of(optimizer)},
      class_{lockstep::detail::type_text(typeid(optimizer))},
      site_{site_of(here)},
      device_kind_{store.stream().kind()},
      device_{make_torch_device(store.stream())} {
  std::map<const void*, Variable> variables;
  for (const ReplicatedModule::Impl* const module : modules)
    for (const Parameter& each : module->parameters)
      variables.emplace(each.tensor.unsafeGetTensorImpl(), each.variable);
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (const at::Tensor& tensor : groups[group].params()) hold(tensor, group, variables);
  if (parameters_.empty()) throw InvalidArgument{fmt::format("a {} without parameters", class_)};
  require_held_alone(store);
  bring_state_home();
}

void ReplicatedOptimizer::State::hold(const at::Tensor& tensor, std::size_t group,
                                      const std::map<const void*, Variable>& variables) {
  const auto found = variables.find(tensor.unsafeGetTensorImpl());
  if (found == variables.end()) {
    const auto owner = owner_of(tensor);
    throw InvalidArgument{fmt::format(
        "{} in group {} of a {} is no parameter of the modules that were named",
        owner ? fmt::format("{} of {}", owner->label, owner->module->label)
              : fmt::format("a tensor of shape {}", describe(Shape{tensor.sizes().begin(), tensor.sizes().end()})),
        group, class_)};
  }
  const std::string name{found->second.name()};
  if (std::ranges::find(parameters_, name, &HeldParameter::name) != parameters_.end())
    throw InvalidArgument{fmt::format("parameter '{}' is in a {} twice", name, class_)};
  if (inside(found->second).state().segment->slices)
    throw InvalidArgument{
        fmt::format("a {} keeps the whole state of parameter '{}' on every rank, and the strategy shares the work of "
                    "optimizers in slices (shard_optimizer); expected an optimizer of the module, as "
                    "net.optimizer(AdamW::Options{{…}}) makes it, or a strategy without this option",
                    class_, name)};
  parameters_.push_back({.tensor = tensor, .name = name, .group = group});
}

std::string ReplicatedOptimizer::State::description() const {
  return fmt::format("the {} that has been replicated{}{}", class_, site_.empty() ? "" : " at ", site_);
}

void ReplicatedOptimizer::State::require_held_alone(VariableStore& store) const {
  for (const auto& external : inside(store).external_values()) {
    const auto* const other = dynamic_cast<const State*>(external.get());
    if (!other) continue;
    for (const HeldParameter& each : parameters_)
      if (std::ranges::any_of(other->parameters_, [&](const auto& its) { return its.tensor.is_same(each.tensor); }))
        throw InvalidArgument{
            fmt::format("parameter '{}' of a {} belongs to {}; expected one live optimizer that keeps its state",
                        each.name, class_, other->description())};
  }
}

void ReplicatedOptimizer::State::require_same_parameters() const {
  auto known = parameters_.begin();
  bool same = true;
  const auto& groups = optimizer_.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group)
    for (const at::Tensor& tensor : groups[group].params()) {
      same = same && known != parameters_.end() && known->group == group && known->tensor.is_same(tensor);
      if (same) ++known;
    }
  if (!same || known != parameters_.end())
    throw InvalidArgument{
        fmt::format("the parameters of {} have changed; expected a new ReplicatedOptimizer afterwards", description())};
}

void ReplicatedOptimizer::State::bring_state_home() {
  require_same_parameters();
  auto& groups = optimizer_.param_groups();
  options_.assign(groups.size(), {});
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto first = std::ranges::find(parameters_, group, &HeldParameter::group);
    if (first == parameters_.end()) continue;
    for (const OptimizerOption& option : kind_.options(groups[group].options()))
      options_[group].push_back({fmt::format("{}@{}.{}", first->name, kind_.name, option.name), option.value()});
  }
  const at::NoGradGuard plain;
  device_->torch_follows();
  for (HeldParameter& each : parameters_) look_at(each);
  device_->stream_follows();
}

void ReplicatedOptimizer::State::look_at(HeldParameter& parameter) {
  auto* const found = find_state(optimizer_, parameter.tensor);
  const auto blank = found ? nullptr : kind_.make_state();
  const bool is_new = !found && parameter.has_state;  // somebody has cleared the state
  const OptimizerMembers members =
      kind_.members(optimizer_.param_groups()[parameter.group].options(), found ? *found : *blank);
  parameter.has_state = found ? dense_state : no_state;
  parameter.counts_steps = members.steps != nullptr;
  parameter.steps = members.steps ? *members.steps : 0;
  std::vector<HeldSlot> slots;
  for (const OptimizerSlot& slot : members.slots) {
    if (!slot.is_used && !slot.at->defined()) continue;
    HeldSlot held{fmt::format("{}@{}", parameter.name, slot.name), slot.name, *slot.at};
    if (held.value.defined()) {
      const bool is_sparse = held.value.is_sparse();
      if (is_sparse) held.value = held.value.to_dense();
      require_like(fmt::format("state '{}' of {}", held.name, description()), held.value, parameter.tensor,
                   "as its parameter is");
      held.value = held.value.to(parameter.tensor.device()).contiguous();
      if (is_sparse) {
        parameter.has_state = sparse_state;
      } else {
        *slot.at = held.value;
      }
    } else {
      const auto before = std::ranges::find(parameter.slots, slot.name, &HeldSlot::slot);
      held.value = !is_new && !found && before != parameter.slots.end()
                       ? before->value
                       : at::zeros_like(parameter.tensor, at::MemoryFormat::Contiguous);
    }
    slots.push_back(std::move(held));
  }
  parameter.slots = std::move(slots);
}

std::vector<lockstep::detail::OptimizerState> ReplicatedOptimizer::State::state() {
  std::vector<lockstep::detail::OptimizerState> all;
  for (std::vector<HeldOption>& options : options_)
    for (HeldOption& each : options) all.push_back({each.name, scalar_view(each.value)});
  for (HeldParameter& each : parameters_) {
    std::string flag = fmt::format("{}@{}", each.name, kind_.name);
    if (options_.size() > 1) flag += fmt::format(".{}", each.group);
    all.push_back({std::move(flag), scalar_view(each.has_state)});
    if (each.counts_steps) all.push_back({each.name + "@step", scalar_view(each.steps)});
    for (const HeldSlot& slot : each.slots) all.push_back({slot.name, view_of(slot.value, device_kind_)});
  }
  return all;
}

void ReplicatedOptimizer::State::take_over() {
  const at::NoGradGuard plain;
  device_->torch_follows();
  auto& groups = optimizer_.param_groups();
  for (std::size_t group = 0; group < options_.size(); ++group) {
    if (options_[group].empty()) continue;
    const std::vector<OptimizerOption> options = kind_.options(groups[group].options());
    for (std::size_t i = 0; i < options.size(); ++i) options[i].set(options_[group][i].value);
  }
  for (const HeldParameter& each : parameters_) {
    auto* found = find_state(optimizer_, each.tensor);
    if (each.has_state == no_state) {
      if (found) set_state(optimizer_, each.tensor, nullptr);
      continue;
    }
    if (!found) {
      set_state(optimizer_, each.tensor, kind_.make_state());
      found = find_state(optimizer_, each.tensor);
    }
    const OptimizerMembers members = kind_.members(groups[each.group].options(), *found);
    if (members.steps) *members.steps = each.steps;
    for (const HeldSlot& held : each.slots)
      *std::ranges::find(members.slots, held.slot, &OptimizerSlot::name)->at =
          each.has_state == sparse_state ? held.value.to_sparse(1) : held.value;
  }
}

std::string ReplicatedOptimizer::State::text() {
  std::string names;
  for (const lockstep::detail::OptimizerState& each : state()) names += each.name + ",";
  return fmt::format("ReplicatedOptimizer of a {} with {} parameters (digest {})", class_, parameters_.size(),
                     to_hex(digest_of(names)));
}

std::shared_ptr<ReplicatedOptimizer::State> ReplicatedOptimizer::make(
    const std::vector<ReplicatedModule::Impl*>& modules, ::torch::optim::Optimizer& optimizer, const Here& here) {
  const auto with_parameters =
      std::ranges::find_if(modules, [](const auto* each) { return !each->parameters.empty(); });
  if (with_parameters == modules.end())
    throw InvalidArgument{"a ReplicatedOptimizer of no module with parameters; expected the modules that it trains"};
  VariableStore& store = (*with_parameters)->store;
  Strategy& strategy = **inside((*with_parameters)->parameters.front().variable).state().strategy;
  const auto state = lockstep::detail::announcing_failure(inside(strategy).group().meeting(), here, [&] {
    for (const ReplicatedModule::Impl* const each : modules)
      if (&each->store != &store) throw InvalidArgument{"a ReplicatedOptimizer of modules of several strategies"};
    return std::make_shared<State>(store, modules, optimizer, here);
  });
  inside(strategy).agree(TagKind::create, here, state->text());
  inside(store).add_external_values(state);
  return state;
}

ReplicatedOptimizer::ReplicatedOptimizer(const ReplicatedModule& module, ::torch::optim::Optimizer& optimizer,
                                         Here here)
    : state_{make({&inside(module).impl()}, optimizer, here)} {}

ReplicatedOptimizer::ReplicatedOptimizer(const std::vector<ReplicatedModule*>& modules,
                                         ::torch::optim::Optimizer& optimizer, Here here) {
  std::vector<ReplicatedModule::Impl*> impls;
  for (const ReplicatedModule* const module : modules) impls.push_back(&inside(*module).impl());
  state_ = make(impls, optimizer, here);
}

ReplicatedOptimizer::ReplicatedOptimizer(ReplicatedOptimizer&&) noexcept = default;
ReplicatedOptimizer::~ReplicatedOptimizer() = default;

}  // namespace lockstep::libtorch
