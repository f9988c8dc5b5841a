#include <algorithm>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/extended.hpp>

#include "core/control/tag.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/strategy_core.hpp"

namespace lockstep {
namespace {

/// Turns one rank's component of a sync-on-read variable into the value that the variable reads as.
class ComponentRead {
 public:
  /// `component` is one leaf, which becomes the value.
  ComponentRead(const detail::Call& call, const Variable& variable, std::vector<detail::Leaf>& component,
                Stream& stream)
      : variable_{variable}, reduced_{call, op_of(call, variable), component, stream} {}

  std::string text() const {
    const std::string read = fmt::format("read variable {} ({})", variable_.label(), name_of(variable_.aggregation()));
    return is_broadcast() ? fmt::format("{}: {}", read, reduced_.leaves_text()) : reduced_.text(read);
  }

  /// COLL; an agreement covers it.
  void combine(Reductions& reductions) {
    if (is_broadcast()) {
      reduced_.broadcast(reductions, 0);
    } else {
      reduced_.all_reduce(reductions);
    }
  }

 private:
  bool is_broadcast() const { return variable_.aggregation() == Variable::Aggregation::only_first_replica; }

  static ReduceOp op_of(const detail::Call& call, const Variable& variable) {
    if (variable.aggregation() == Variable::Aggregation::none)
      throw InvalidArgument{
          fmt::format("{}variable {} has the aggregation `none`: there is no way to read its components as one",
                      call.text(), variable.label())};
    return detail::op_of(variable.aggregation());
  }

  const Variable& variable_;
  detail::ReducedLeaves reduced_;
};

/// ContextError where the values of all replicas cannot be read.
void require_readable(const Strategy& strategy, const detail::Call& call) {
  detail::require_not_another(strategy, call);
  if (detail::current_frame() && !Strategy::in_cross_replica_context())
    throw ContextError{call.text() +
                       "reading a variable requires cross-replica context, and this is replica context, inside of "
                       "run(): call local() on the variable for this replica's component, or read it in a merge_call "
                       "or after the run"};
}

/// Of each replica: made when the job starts, and read locally from then on.
const std::vector<std::string>& device_names(Strategy& strategy, std::string_view method) {
  if (detail::is_default(strategy))
    throw ContextError{fmt::format("{}() method unsupported by the default strategy", method)};
  return inside(strategy).group().device_names();
}

}  // namespace

Scope StrategyExtended::enter(std::string_view call, const Here& here) const {
  return detail::enter(*strategy_, {call, here});
}

Scope StrategyExtended::enter_update() const {
  return Scope{{detail::ContextMode::update, this}};
}

int StrategyExtended::replica() const {
  return strategy_->rank();
}
int StrategyExtended::replicas() const {
  return strategy_->num_replicas_in_sync();
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

void StrategyExtended::require_value_itself(std::string_view call, ReduceOp op, Kind kind, const Here& here) const {
  require_context(call, here);
  const int replicas = strategy_->num_replicas_in_sync();
  if (op == ReduceOp::mean || (kind == Kind::plain && replicas == 1)) return;
  const std::string begin = detail::Call{call, here}.text();
  constexpr std::string_view refusal = "value cannot be reduced with the given reduce op";
  if (kind == Kind::mirrored)
    throw InvalidArgument{
        fmt::format("{}A mirrored {} {}: it is one value, the same on every replica", begin, refusal, name_of(op))};
  throw InvalidArgument{
      fmt::format("{}A non-distributed {} {}: it does not say what each of the {} replicas adds, as a PerReplica does",
                  begin, refusal, name_of(op), replicas)};
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

void StrategyExtended::reduce(std::string_view name, ReduceOp op, Leaves& leaves, Destination to, std::string_view more,
                              const Here& here) {
  require_context(name, here);
  inside(*strategy_).require_not_captured(here);
  detail::ReducedLeaves reduced{{name, here}, op, leaves, strategy_->stream()};
  const std::string method = to ? fmt::format("{} replica {}", name, to->id) : std::string{name};
  inside(*strategy_).agree(TagKind::reduce, here, reduced.text(method, more));
  if (to) {
    reduced.reduce_to_one(inside(*strategy_).reductions(), to->id);
  } else {
    reduced.all_reduce(inside(*strategy_).reductions());
  }
}

void StrategyExtended::broadcast(Leaves& leaves, std::string_view more, const Here& here) {
  const detail::Call call{"broadcast_to", here};
  detail::require_cross_replica(*strategy_, call);
  inside(*strategy_).require_not_captured(here);
  detail::ReducedLeaves reduced{call, ReduceOp::sum, leaves, strategy_->stream()};
  inside(*strategy_).agree(TagKind::broadcast, here, reduced.leaves_text() + std::string{more});
  reduced.broadcast(inside(*strategy_).reductions(), 0);
}

Tensor StrategyExtended::read_var(const Variable& variable, Here here) {
  return read_called("read_var", {variable}, here).front();
}

std::vector<Tensor> StrategyExtended::read_vars(const detail::VariableList& variables, Here here) {
  return read_called("read_vars", variables, here);
}

std::vector<Tensor> StrategyExtended::read_called(std::string_view call, const detail::VariableList& variables,
                                                  const Here& here) {
  require_readable(*strategy_, {call, here});
  std::vector<Leaves> values;  // of one leaf each
  std::list<ComponentRead> reads;
  std::vector<std::string> texts;
  values.reserve(variables.size());
  for (const Variable& variable : variables) {
    require_own(variable, call, here);
    const bool is_combined = inside(variable).state().synchronization == Variable::Synchronization::on_read;
    if (is_combined) inside(*strategy_).require_not_captured(here);
    values.push_back({Tensor::on_host(variable.local(here))});
    if (!is_combined) continue;
    texts.push_back(reads.emplace_back(detail::Call{call, here}, variable, values.back(), strategy_->stream()).text());
  }
  if (!reads.empty()) inside(*strategy_).agree(TagKind::reduce, here, fmt::format("{}", fmt::join(texts, ", ")));
  for (ComponentRead& read : reads) read.combine(inside(*strategy_).reductions());

  std::vector<Tensor> tensors;
  for (const Leaves& each : values) tensors.push_back(std::get<Tensor>(each.front()));
  return tensors;
}

bool StrategyExtended::variable_created_in_scope(const Variable& variable) const {
  return inside(variable).state().owner == &strategy_->store();
}

std::vector<std::string> StrategyExtended::worker_devices() const {
  return device_names(*strategy_, "worker_devices");
}

std::vector<std::vector<std::string>> StrategyExtended::worker_devices_by_replica() const {
  std::vector<std::vector<std::string>> by_replica;
  for (const std::string& device : device_names(*strategy_, "worker_devices_by_replica"))
    by_replica.push_back({device});
  return by_replica;
}

std::vector<std::string> StrategyExtended::parameter_devices() const {
  return device_names(*strategy_, "parameter_devices");
}

std::vector<std::string> StrategyExtended::non_slot_devices(const detail::VariableList& variables) const {
  if (!detail::is_default(*strategy_)) return {inside(*strategy_).group().device_name()};
  if (variables.size() == 0)
    throw InvalidArgument{"non_slot_devices: the default strategy takes the place of a variable; got none"};
  const Variable& first = *std::ranges::min_element(variables, {}, &Variable::name);
  return {inside(detail::strategy_of(first)).group().device_name()};
}

bool StrategyExtended::should_checkpoint() const {
  return strategy_->rank() == 0;
}
bool StrategyExtended::should_save_summary() const {
  return strategy_->rank() == 0;
}

}  // namespace lockstep
