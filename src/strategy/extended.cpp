#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/extended.hpp>

#include "strategy/batch.hpp"
#include "strategy/context_stack.hpp"
#include "strategy/strategy_core.hpp"

namespace lockstep {

StrategyExtended::Update::Update(Strategy& strategy) {
  detail::require_cross_replica(strategy);
  detail::push({detail::Mode::update, &strategy});
}

StrategyExtended::Update::~Update() {
  detail::pop();
}

std::string StrategyExtended::beside(const Variable& destination) {
  return fmt::format(" for {}", destination.label());
}

void StrategyExtended::require_context() const {
  detail::require_cross_replica(*strategy_);
}

void StrategyExtended::require_own(const Variable& variable) const {
  require_context();
  if (!variable_created_in_scope(variable))
    throw InvalidArgument{fmt::format("variable {} was not created by {}", variable.label(), strategy_->name())};
}

void StrategyExtended::require_value_itself(ReduceOp op, Kind kind) const {
  require_context();
  const int replicas = strategy_->num_replicas_in_sync();
  if (op == ReduceOp::mean || (kind == Kind::plain && replicas == 1)) return;
  constexpr std::string_view refusal = "value cannot be reduced with the given reduce op";
  if (kind == Kind::mirrored)
    throw InvalidArgument{
        fmt::format("A mirrored {} {}: it is one value, the same on every replica", refusal, name_of(op))};
  throw InvalidArgument{
      fmt::format("A non-distributed {} {}: it does not say what each of the {} replicas adds, as a PerReplica does",
                  refusal, name_of(op), replicas)};
}

bool StrategyExtended::is_here(OneReplica destination) const {
  require_context();
  const int replicas = strategy_->num_replicas_in_sync();
  if (destination.id < 0 || destination.id >= replicas)
    throw InvalidArgument{fmt::format("destination: replica {} is not one of the {} replicas, 0 to {}", destination.id,
                                      replicas, replicas - 1)};
  return strategy_->group().rank() == destination.id;
}

void StrategyExtended::all_reduce(ReduceOp op, Leaves& leaves, std::string_view more, const Here& here) {
  require_context();
  detail::Batch batch{op, leaves, strategy_->stream()};
  strategy_->agree(TagKind::reduce, here, batch.text("reduce_to", more));
  batch.all_reduce(strategy_->group().reductions());
}

bool StrategyExtended::reduce_to_one(ReduceOp op, Leaves& leaves, OneReplica destination, std::string_view more,
                                     const Here& here) {
  const bool here_it_is = is_here(destination);
  detail::Batch batch{op, leaves, strategy_->stream()};
  strategy_->agree(TagKind::reduce, here, batch.text(fmt::format("reduce_to replica {}", destination.id), more));
  batch.reduce_to_one(strategy_->group().reductions(), destination.id);
  return here_it_is;
}

void StrategyExtended::broadcast(Leaves& leaves, std::string_view more, const Here& here) {
  require_context();
  detail::Batch batch{ReduceOp::sum, leaves, strategy_->stream()};
  strategy_->agree(TagKind::reduce, here, batch.text("broadcast_to", more));
  batch.broadcast(strategy_->group().reductions(), 0);
}

std::vector<Mirrored<Tensor>> StrategyExtended::batch_reduce_to(
    ReduceOp op, std::span<const std::pair<PerReplica<Tensor>, Variable>> pairs, Here here) {
  Leaves leaves;
  std::string destinations;
  for (const auto& [value, destination] : pairs) {
    require_own(destination);
    leaves.push_back(value.local());
    destinations += beside(destination);
  }
  all_reduce(op, leaves, destinations, here);
  std::vector<Mirrored<Tensor>> results;
  for (detail::Leaf& leaf : leaves) results.push_back(detail::MirroredAccess::make(std::get<Tensor>(std::move(leaf))));
  return results;
}

Tensor StrategyExtended::read_var(const Variable& variable, Here here) {
  require_own(variable);
  Leaves component{Tensor::on_host(variable.local())};
  if (variable.state().synchronization == VariableSynchronization::on_write) return std::get<Tensor>(component.front());
  const VariableAggregation aggregation = variable.aggregation();
  if (aggregation == VariableAggregation::none)
    throw InvalidArgument{fmt::format(
        "variable {} has the aggregation `none`: there is no way to read its components as one", variable.label())};
  detail::Batch batch{aggregation == VariableAggregation::mean ? ReduceOp::mean : ReduceOp::sum, component,
                      strategy_->stream()};
  strategy_->agree(TagKind::reduce, here,
                   batch.text(fmt::format("read variable {} ({})", variable.label(), name_of(aggregation))));
  CrossDeviceOps& reductions = strategy_->group().reductions();
  if (aggregation == VariableAggregation::only_first_replica) {
    batch.broadcast(reductions, 0);
  } else {
    batch.all_reduce(reductions);
  }
  return std::get<Tensor>(component.front());
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return variable.state().owner == &strategy_->store();
}

bool StrategyExtended::should_checkpoint() const {
  return strategy_->group().rank() == 0;
}
bool StrategyExtended::should_save_summary() const {
  return strategy_->group().rank() == 0;
}

}  // namespace lockstep
