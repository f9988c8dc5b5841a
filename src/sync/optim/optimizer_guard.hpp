// Keeps optimizers that know nothing of towers out of model functions.
#pragma once

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

namespace lockstep::detail {

/// While it lives, this thread's steps in `context` are refused, unless a TowerOptimizer came first. Guards nest.
class OptimizerGuard {
 public:
  explicit OptimizerGuard(const ReplicaContext& context)
      : context_{context}, open_{context.num_replicas_in_sync() == 1}, outer_{innermost_} {
    innermost_ = this;
  }
  OptimizerGuard(const OptimizerGuard&) = delete;
  ~OptimizerGuard() { innermost_ = outer_; }

  /// Opens this thread's innermost guard: its model function has used a TowerOptimizer.
  static void note_tower_optimizer() {
    if (innermost_) innermost_->open_ = true;
  }

  /// Whether `context` is that of a guard.
  static bool is_in(const ReplicaContext& context) { return innermost_ && &innermost_->context_ == &context; }

  /// InvalidArgument where steps are refused. On one replica they are not: it gets what a wrapped optimizer would do.
  static void require_step_allowed(const ReplicaContext& context) {
    if (is_in(context) && !innermost_->open_)
      throw InvalidArgument{
          "Please wrap optimizers with TowerOptimizer in order to use replicate_model_fn with multiple replicas."};
  }

 private:
  static inline thread_local OptimizerGuard* innermost_ = nullptr;

  const ReplicaContext& context_;
  bool open_;
  OptimizerGuard* outer_;
};

}  // namespace lockstep::detail
