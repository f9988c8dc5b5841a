#include "optim/optimizer_guard.hpp"

#include <lockstep/base/error.hpp>

namespace lockstep::detail {
namespace {

thread_local OptimizerGuard* innermost = nullptr;

}  // namespace

OptimizerGuard::OptimizerGuard(const ReplicaContext& context)
    : context_{context}, open_{context.num_replicas_in_sync() == 1}, outer_{innermost} {
  innermost = this;
}

OptimizerGuard::~OptimizerGuard() {
  innermost = outer_;
}

void OptimizerGuard::note_tower_optimizer() {
  if (innermost) innermost->open_ = true;
}

bool OptimizerGuard::is_in(const ReplicaContext& context) {
  return innermost && &innermost->context_ == &context;
}

void OptimizerGuard::require_step_allowed(const ReplicaContext& context) {
  if (is_in(context) && !innermost->open_)
    throw InvalidArgument{
        "Please wrap optimizers with TowerOptimizer in order to use replicate_model_fn with multiple replicas."};
}

}  // namespace lockstep::detail
