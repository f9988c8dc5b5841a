#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/extended.hpp>

#include "control/tag.hpp"
#include "reduce/cross_device_ops.hpp"
#include "strategy/context_stack.hpp"
#include "strategy/reduced_leaves.hpp"
#include "strategy/strategy_core.hpp"

namespace lockstep {
namespace {

/// Turns one rank's component of a sync-on-read variable into the value that the variable reads as.
class ComponentRead {
 public:
  /// `component` is one leaf, which becomes the value.
  ComponentRead(const Variable& variable, std::vector<detail::Leaf>& component, Stream& stream, const Here& here)
      : variable_{variable}, reduced_{{"read_var", here}, op_of(variable), component, stream} {}

  std::string text() const {
    const std::string read = fmt::format("read variable {} ({})", variable_.label(), name_of(variable_.aggregation()));
    return is_broadcast() ? fmt::format("{}: {}", read, reduced_.leaves_text()) : reduced_.text(read);
  }

  /// COLL; an agreement covers it.
  void combine(CrossDeviceOps& reductions) {
    if (is_broadcast()) {
      reduced_.broadcast(reductions, 0);
    } else {
      reduced_.all_reduce(reductions);
    }
  }

 private:
  bool is_broadcast() const { return variable_.aggregation() == Variable::Aggregation::only_first_replica; }

  static ReduceOp op_of(const Variable& variable) {
    if (variable.aggregation() == Variable::Aggregation::none)
      throw InvalidArgument{fmt::format(
          "variable {} has the aggregation `none`: there is no way to read its components as one", variable.label())};
    return variable.aggregation() == Variable::Aggregation::mean ? ReduceOp::mean : ReduceOp::sum;
  }

  const Variable& variable_;
  detail::ReducedLeaves reduced_;
};

}  // namespace

StrategyExtended::Update::Update(Strategy& strategy) {
  detail::push({detail::ContextMode::update, &strategy.extended()});
}

StrategyExtended::Update::~Update() {
  detail::pop();
}

std::string StrategyExtended::beside(const Variable& destination) {
  return fmt::format(" for {}", destination.label());
}

void StrategyExtended::require_context(std::string_view call, const Here& here) const {
  detail::require_cross_replica(*strategy_, {call, here});
}

void StrategyExtended::require_own(const Variable& variable, std::string_view call, const Here& here) const {
  require_context(call, here);
  if (!variable_created_in_scope(variable))
    throw InvalidArgument{fmt::format("{}variable {} was not created by {}", detail::Call{call, here}.text(),
                                      variable.label(), strategy_->name())};
}

void StrategyExtended::require_value_itself(ReduceOp op, Kind kind, const Here& here) const {
  require_context("reduce_to", here);
  const int replicas = strategy_->num_replicas_in_sync();
  if (op == ReduceOp::mean || (kind == Kind::plain && replicas == 1)) return;
  const std::string call = detail::Call{"reduce_to", here}.text();
  constexpr std::string_view refusal = "value cannot be reduced with the given reduce op";
  if (kind == Kind::mirrored)
    throw InvalidArgument{
        fmt::format("{}A mirrored {} {}: it is one value, the same on every replica", call, refusal, name_of(op))};
  throw InvalidArgument{
      fmt::format("{}A non-distributed {} {}: it does not say what each of the {} replicas adds, as a PerReplica does",
                  call, refusal, name_of(op), replicas)};
}

void StrategyExtended::copy(Leaves& leaves) const {
  detail::copy_leaves(leaves, strategy_->stream());
}

bool StrategyExtended::is_here(OneReplica destination, const Here& here) const {
  require_context("reduce_to", here);
  const int replicas = strategy_->num_replicas_in_sync();
  if (destination.id < 0 || destination.id >= replicas)
    throw InvalidArgument{fmt::format("{}destination: replica {} is not one of the {} replicas, 0 to {}",
                                      detail::Call{"reduce_to", here}.text(), destination.id, replicas, replicas - 1)};
  return strategy_->rank() == destination.id;
}

void StrategyExtended::all_reduce(ReduceOp op, Leaves& leaves, std::string_view more, const Here& here) {
  const detail::Call call{"reduce_to", here};
  detail::require_cross_replica(*strategy_, call);
  strategy_->require_not_captured(here);
  detail::ReducedLeaves reduced{call, op, leaves, strategy_->stream()};
  strategy_->agree(TagKind::reduce, here, reduced.text("reduce_to", more));
  reduced.all_reduce(strategy_->reductions());
}

void StrategyExtended::reduce_to_one(ReduceOp op, Leaves& leaves, OneReplica destination, std::string_view more,
                                     const Here& here) {
  const detail::Call call{"reduce_to", here};
  strategy_->require_not_captured(here);
  detail::ReducedLeaves reduced{call, op, leaves, strategy_->stream()};
  strategy_->agree(TagKind::reduce, here, reduced.text(fmt::format("reduce_to replica {}", destination.id), more));
  reduced.reduce_to_one(strategy_->reductions(), destination.id);
}

void StrategyExtended::broadcast(Leaves& leaves, std::string_view more, const Here& here) {
  const detail::Call call{"broadcast_to", here};
  detail::require_cross_replica(*strategy_, call);
  strategy_->require_not_captured(here);
  detail::ReducedLeaves reduced{call, ReduceOp::sum, leaves, strategy_->stream()};
  strategy_->agree(TagKind::broadcast, here, reduced.leaves_text() + std::string{more});
  reduced.broadcast(strategy_->reductions(), 0);
}

void StrategyExtended::batch_all_reduce(ReduceOp op, Leaves& leaves, std::span<const Variable> destinations,
                                        const Here& here) {
  std::string texts;
  for (const Variable& destination : destinations) {
    require_own(destination, "batch_reduce_to", here);
    texts += beside(destination);
  }
  all_reduce(op, leaves, texts, here);
}

Tensor StrategyExtended::read_var(const Variable& variable, Here here) {
  return read_vars({variable}, here).front();
}

std::vector<Tensor> StrategyExtended::read_vars(const detail::VariableList& variables, Here here) {
  detail::require_cross_replica(*strategy_, {"read_var", here});
  std::vector<Leaves> values;  // of one leaf each
  std::list<ComponentRead> reads;
  std::vector<std::string> texts;
  values.reserve(variables.size());
  for (const Variable& variable : variables) {
    require_own(variable, "read_var", here);
    const bool is_combined = variable.state().synchronization == Variable::Synchronization::on_read;
    if (is_combined) strategy_->require_not_captured(here);
    values.push_back({Tensor::on_host(variable.local(here))});
    if (!is_combined) continue;
    texts.push_back(reads.emplace_back(variable, values.back(), strategy_->stream(), here).text());
  }
  if (!reads.empty()) strategy_->agree(TagKind::reduce, here, fmt::format("{}", fmt::join(texts, ", ")));
  for (ComponentRead& read : reads) read.combine(strategy_->reductions());

  std::vector<Tensor> tensors;
  for (const Leaves& each : values) tensors.push_back(std::get<Tensor>(each.front()));
  return tensors;
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return variable.state().owner == &strategy_->store();
}

bool StrategyExtended::should_checkpoint() const {
  return strategy_->rank() == 0;
}
bool StrategyExtended::should_save_summary() const {
  return strategy_->rank() == 0;
}

}  // namespace lockstep
