#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/estimator/tower.hpp>

#include "sync/optim/computed_step.hpp"
#include "sync/optim/plan.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/estimator/tower_call.hpp"

namespace lockstep {
namespace {

void require_step_counter(const Variable& counter, ReplicaContext& context, const Here& here) {
  if (!inside(context.strategy()).created(counter) || !counter.shape().empty() || counter.dtype() != DType::i64 ||
      inside(counter).state().synchronization != Variable::Synchronization::on_write)
    throw InvalidArgument{fmt::format("{}the global step {} is {}{}; expected a mirrored variable of {}, i64[]",
                                      detail::Call{detail::apply_call, here}.text(), counter.label(),
                                      name_of(counter.dtype()), describe(counter.shape()), context.strategy().name())};
  (void)counter.local(here);
}

/// All ranks have made a step, so each counts it by itself.
void count_step(const Variable& counter, ReplicaContext& context) {
  const detail::PushedFrame update{{detail::ContextMode::update, detail::StrategyAddress{context.strategy()}}};
  counter.assign_add(Tensor::scalar(std::int64_t{1}));
}

}  // namespace

EstimatorSpec::Mode Tower::mode() const {
  return call_.mode();
}

ReplicaContext& Tower::context() const {
  return call_.context();
}

MirroredVariable Tower::variable(Variable::Options options, const std::function<Tensor()>& initial, Here here) {
  return call_.variable(std::move(options), initial, here);
}

SyncOnReadVariable Tower::accumulator(const std::string& name, const Shape& shape, DType dtype, Here here) {
  return call_.accumulator(name, shape, dtype, here);
}

TowerOptimizer::TowerOptimizer(std::shared_ptr<Optimizer> optimizer) : optimizer_{std::move(optimizer)} {
  if (!optimizer_) throw InvalidArgument{"a TowerOptimizer without an optimizer"};
}

TowerOptimizer::TowerOptimizer(Factory make) : make_{std::move(make)} {
  if (!make_) throw InvalidArgument{"a TowerOptimizer without a function that makes its optimizer"};
}

Optimizer& TowerOptimizer::optimizer() {
  if (!optimizer_) optimizer_ = make_();
  if (!optimizer_) throw InvalidArgument{"the function that makes a TowerOptimizer's optimizer returned none"};
  detail::OptimizerGuard::note_tower_optimizer();
  return *optimizer_;
}

void TowerOptimizer::apply_gradients(Tower& tower, const std::vector<Tower::Gradient>& gradients,
                                     const std::optional<Variable>& global_step, Here here) {
  detail::TowerCall& call = tower.call_;
  ReplicaContext& context = call.context();
  detail::require_current(context, {detail::apply_call, here});
  Optimizer& own = optimizer();
  if (call.mode() != EstimatorSpec::Mode::train) return;
  if (global_step) require_step_counter(*global_step, context, here);
  std::vector<Variable> variables;
  for (const Tower::Gradient& each : gradients) variables.push_back(each.variable);
  detail::require_applicable({detail::apply_call, here}, context.strategy(), variables);
  const std::vector<Optimizer::Gradient> complete = call.complete(gradients, global_step);
  if (complete.empty()) return;
  const double divisor = call.divides() ? context.num_replicas_in_sync() : 1;
  own.apply(context, {.gradients = complete}, {.divisor = divisor}, here);
  if (global_step) count_step(*global_step, context);
}

void TowerOptimizer::apply_gradients(ReplicaContext& context, const std::vector<Tower::Gradient>& gradients,
                                     const std::optional<Variable>& global_step, Here here) {
  detail::require_current(context, {detail::apply_call, here});
  if (detail::OptimizerGuard::is_in(context))
    throw InvalidArgument{detail::Call{detail::apply_call, here}.text() +
                          "a TowerOptimizer in a model function: expected the tower in place of its context"};
  if (global_step) require_step_counter(*global_step, context, here);
  std::vector<Optimizer::Gradient> present;
  for (const Tower::Gradient& each : gradients)
    if (each.value) present.push_back({*each.value, each.variable});
  const std::string counting = global_step ? fmt::format("the global step {}", global_step->label()) : "";
  optimizer().apply(context, {.gradients = present}, {.what_follows = counting}, here);
  if (global_step && !present.empty()) count_step(*global_step, context);
}

}  // namespace lockstep
