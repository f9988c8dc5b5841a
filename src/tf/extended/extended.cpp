#include <algorithm>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/values/walks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/strategy_core.hpp"
#include "sync/strategy/variable_reads.hpp"

namespace lockstep {
namespace {

/// Of each replica.
std::vector<std::string> device_names(Strategy& strategy, std::string_view method) {
  if (detail::is_default(strategy))
    throw ContextError{fmt::format("{}() method unsupported by the default strategy", method)};
  return inside(strategy).group().device_names();
}

}  // namespace

Scope StrategyExtended::enter(std::string_view call, const Here& here) const {
  return detail::enter(strategy(), {call, here});
}

Scope StrategyExtended::enter_update() const {
  return detail::Inside<Scope>::make({detail::ContextMode::update, address_});
}

std::string StrategyExtended::beside(const Variable& destination) {
  return detail::destination_text(destination);
}

void StrategyExtended::require_context(std::string_view call, const Here& here) const {
  detail::require_cross_replica(strategy(), {call, here});
}

void StrategyExtended::require_own(const Variable& variable, std::string_view call, const Here& here) const {
  detail::require_own(strategy(), variable, {call, here});
}

bool StrategyExtended::is_here(OneReplica destination, const Here& here) const {
  require_context("reduce_to", here);
  const int replicas = strategy().num_replicas_in_sync();
  if (destination.id < 0 || destination.id >= replicas)
    throw InvalidArgument{fmt::format("{}destination: replica {} is not one of the {} replicas, 0 to {}",
                                      detail::Call{"reduce_to", here}.text(), destination.id, replicas, replicas - 1)};
  return strategy().rank() == destination.id;
}

void StrategyExtended::broadcast(detail::AnyValue nest, const Here& here) const {
  std::vector<detail::Leaf> leaves = detail::leaves_in(nest);
  detail::broadcast_leaves(strategy(), {"broadcast_to", here}, leaves, detail::structure_of(nest));
  detail::set_leaves(nest, leaves);
}

Tensor StrategyExtended::read_var(const Variable& variable, Here here) const {
  return detail::read_variables(strategy(), {"read_var", here}, {variable}).front();
}

std::vector<Tensor> StrategyExtended::read_vars(const detail::VariableList& variables, Here here) const {
  return detail::read_variables(strategy(), {"read_vars", here}, variables);
}

StrategyExtended::Colocation::Colocation(const Variable& beside) {
  detail::push_colocated(beside);
}
StrategyExtended::Colocation::~Colocation() {
  detail::pop_colocated();
}

void StrategyExtended::require_colocation(const Variable& variable, const Here& here) const {
  detail::require_scope(strategy(), {"colocate_vars_with", here});
  if (!variable_created_in_scope(variable))
    throw InvalidArgument{
        fmt::format("`colocate_vars_with` must only be passed a variable created in this `Strategy::scope()`, that of "
                    "{}, not {}",
                    strategy().name(), detail::operand_text(variable))};
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return inside(strategy()).created(variable);
}

std::vector<std::string> StrategyExtended::worker_devices() const {
  return device_names(strategy(), "worker_devices");
}

std::vector<std::vector<std::string>> StrategyExtended::worker_devices_by_replica() const {
  std::vector<std::vector<std::string>> by_replica;
  for (const std::string& device : device_names(strategy(), "worker_devices_by_replica"))
    by_replica.push_back({device});
  return by_replica;
}

std::vector<std::string> StrategyExtended::parameter_devices() const {
  return device_names(strategy(), "parameter_devices");
}

std::vector<std::string> StrategyExtended::non_slot_devices(const detail::VariableList& variables) const {
  if (!detail::is_default(strategy())) return {inside(strategy()).group().device_name()};
  if (variables.size() == 0)
    throw InvalidArgument{"non_slot_devices: the default strategy takes the place of a variable; got none"};
  const Variable& first = *std::ranges::min_element(variables, {}, &Variable::name);
  return {inside(detail::strategy_of(first)).group().device_name()};
}

bool StrategyExtended::should_checkpoint() const {
  return strategy().rank() == 0;
}
bool StrategyExtended::should_save_summary() const {
  return strategy().rank() == 0;
}

}  // namespace lockstep
