#include <cstdlib>
#include <type_traits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/strategy_core.hpp"
#include "sync/strategy/variable_reads.hpp"

namespace lockstep {
namespace {

enum class Assignment { set, add, subtract };

/// The method that the program called.
std::string_view call_name(Assignment assignment) {
  switch (assignment) {
    case Assignment::set: return "assign";
    case Assignment::add: return "assign_add";
    case Assignment::subtract: return "assign_sub";
  }
  return "?";
}

/// This rank's part of `value`, so that all parts add up to it. For integers the first replicas take the remainder.
template <class T>
T part_of(T value, const ReplicaGroup& group) {
  if constexpr (std::is_integral_v<T>) {
    const std::int64_t whole = value, left_over = whole % group.size();
    const bool takes_more = group.rank() < std::abs(left_over);
    return static_cast<T>(whole / group.size() + (takes_more ? (left_over < 0 ? -1 : 1) : 0));
  } else {
    return static_cast<T>(value / static_cast<sum_t<T>>(group.size()));
  }
}

Tensor parts_of(const Tensor& value, const ReplicaGroup& group) {
  const Tensor parts = Tensor::on_host(value.view());
  with_element_type(value.dtype(), [&]<class T>() {
    for (T& element : parts.view().elements<T>()) element = part_of(element, group);
  });
  return parts;
}

void apply_on_host(Assignment assignment, const TensorView& value, const TensorView& target) {
  with_element_type(target.dtype(), [&]<class T>() {
    const auto from = value.elements<T>(), to = target.elements<T>();
    for (std::size_t i = 0; i < to.size(); ++i) {
      switch (assignment) {
        case Assignment::set: to[i] = from[i]; break;
        case Assignment::add: to[i] = static_cast<T>(sum_of<sum_t<T>>(to[i], from[i])); break;
        case Assignment::subtract: to[i] = static_cast<T>(difference_of<sum_t<T>>(to[i], from[i])); break;
      }
    }
  });
}

/// Arithmetic on variables runs on the host, wherever they live: it is not part of a training step.
void apply(Assignment assignment, const Tensor& value, const Variable& component) {
  const TensorView target = component.local();
  if (target.device() == DeviceKind::cpu && value.device() == DeviceKind::cpu)
    return apply_on_host(assignment, value.view(), target);
  Stream& stream = *inside(component).state().segment->stream;
  if (assignment == Assignment::set) return copy(value.view(), target, stream);
  const Tensor result = Tensor::on_host(target);
  apply_on_host(assignment, Tensor::on_host(value.view()).view(), result.view());
  copy(result.view(), target, stream);
}

/// In replica context: one merge_call makes one value of the replicas'.
void assign_in_replica(const Variable& variable, Assignment assignment, const Tensor& value, const Here& here) {
  const detail::Call call{call_name(assignment), here};
  const Variable::Aggregation aggregation = inside(variable).state().aggregation;
  if (aggregation == Variable::Aggregation::none)
    throw InvalidArgument{
        fmt::format("{}You must specify an aggregation method to update a MirroredVariable in Replica Context: "
                    "variable {} has none",
                    call.text(), variable.label())};
  if (aggregation == Variable::Aggregation::mean) detail::require_reducible(call, ReduceOp::mean, value.dtype());
  ReplicaContext::current()->merge_call(
      [&](Strategy& strategy, const Variable&, const PerReplica<Tensor>& values) {
        std::vector<detail::Leaf> merged{values.local()};
        if (aggregation == Variable::Aggregation::only_first_replica) {
          detail::broadcast_leaves(strategy, {"broadcast_to", here}, merged, {});
        } else {
          detail::require_own(strategy, variable, {"reduce_to", here});
          detail::ReduceCall{strategy, "reduce_to", detail::op_of(aggregation),
                             here,     {},          detail::destination_text(variable)}
              .reduce(merged, {});
        }
        apply(assignment, std::get<Tensor>(merged.front()), variable);
      },
      args(variable, value), here);  // the ranks agree on the variable too
}

/// A sync-on-read variable in cross-replica context: every rank sets its component so that a read returns `value`.
void assign_all_components(const Variable& variable, Assignment assignment, const Tensor& value, const Here& here) {
  if (assignment != Assignment::set)
    throw ContextError{fmt::format(
        "{}Replica-local variables may only be assigned in a replica context: variable {} is each replica's own",
        detail::Call{call_name(assignment), here}.text(), variable.label())};
  const bool dealt = variable.aggregation() == Variable::Aggregation::sum;
  apply(assignment, dealt ? parts_of(value, inside(detail::strategy_of(variable)).group()) : value, variable);
}

void assign(const Variable& variable, Assignment assignment, const Tensor& value, const Here& here) {
  const detail::Call call{call_name(assignment), here};
  if (value.shape() != variable.shape() || value.dtype() != variable.dtype())
    throw InvalidArgument{fmt::format("{}variable {} is {}{}; it cannot take {}", call.text(), variable.label(),
                                      name_of(variable.dtype()), describe(variable.shape()), describe(value.view()))};
  (void)variable.local(here);  // ContextError before it has memory
  const detail::Frame* const frame = detail::current_frame();
  if (frame && !inside(frame->strategy()).created(variable))
    throw ContextError{fmt::format("{}Mixing different Strategy objects: variable {} was not created by {}",
                                   call.text(), variable.label(), frame->strategy().name())};
  const bool in_replica = frame && frame->mode == detail::ContextMode::replica;
  if (inside(variable).state().synchronization == Variable::Synchronization::on_read) {
    const bool on_component = in_replica || (frame && frame->mode == detail::ContextMode::update);
    return on_component ? apply(assignment, value, variable) : assign_all_components(variable, assignment, value, here);
  }
  if (in_replica) return assign_in_replica(variable, assignment, value, here);
  apply(assignment, value, variable);
}

}  // namespace

Strategy& detail::strategy_of(const Variable& variable, const Call& call) {
  if (Strategy* const strategy = *inside(variable).state().strategy) return *strategy;
  throw ContextError{fmt::format("{}the strategy of variable {} is gone", call.text(), variable.label())};
}

std::string detail::operand_text(const Variable& variable) {
  const Strategy* const strategy = *inside(variable).state().strategy;
  return fmt::format("variable {} of {}", variable.label(), strategy ? strategy->name() : "a strategy that is gone");
}

Tensor SyncOnReadVariable::read(Here here) const {
  const detail::Call call{"read", here};
  return detail::read_variables(detail::strategy_of(*this, call), call, {*this}).front();
}

std::string_view name_of(Variable::Synchronization synchronization) {
  switch (synchronization) {
    case Variable::Synchronization::automatic: return "automatic";
    case Variable::Synchronization::none: return "none";
    case Variable::Synchronization::on_write: return "on_write";
    case Variable::Synchronization::on_read: return "on_read";
  }
  return "?";
}

std::string_view name_of(Variable::Aggregation aggregation) {
  switch (aggregation) {
    case Variable::Aggregation::none: return "none";
    case Variable::Aggregation::sum: return "sum";
    case Variable::Aggregation::mean: return "mean";
    case Variable::Aggregation::only_first_replica: return "only_first_replica";
  }
  return "?";
}

void Variable::assign(const Tensor& value, Here here) const {
  lockstep::assign(*this, Assignment::set, value, here);
}
void Variable::assign_add(const Tensor& value, Here here) const {
  lockstep::assign(*this, Assignment::add, value, here);
}
void Variable::assign_sub(const Tensor& value, Here here) const {
  lockstep::assign(*this, Assignment::subtract, value, here);
}

}  // namespace lockstep
