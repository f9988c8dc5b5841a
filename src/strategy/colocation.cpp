#include "strategy/colocation.hpp"

#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/extended.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "strategy/context_stack.hpp"

namespace lockstep {
namespace {

/// The variables beside which others are created, innermost last.
std::vector<Variable>& stack() {
  thread_local std::vector<Variable> variables;
  return variables;
}

}  // namespace

void detail::require_colocated(const Strategy& strategy) {
  if (stack().empty()) return;
  require_scope(strategy);
  const Variable& beside = stack().back();
  if (*beside.state().strategy != &strategy)
    throw ContextError{
        fmt::format("`colocate_vars_with`: {} cannot create one beside {}", strategy.name(), operand_text(beside))};
}

StrategyExtended::Colocation::Colocation(const Variable& beside) {
  stack().push_back(beside);
}

StrategyExtended::Colocation::~Colocation() {
  stack().pop_back();
}

StrategyExtended::Colocation StrategyExtended::colocate_vars_with(const Variable& variable, Here here) const {
  detail::require_scope(*strategy_, {"colocate_vars_with", here});
  if (!variable_created_in_scope(variable))
    throw InvalidArgument{
        fmt::format("`colocate_vars_with` must only be passed a variable created in this `Strategy::scope()`, that of "
                    "{}, not {}",
                    strategy_->name(), detail::operand_text(variable))};
  return Colocation{variable};
}

}  // namespace lockstep
