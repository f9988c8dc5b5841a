// Keeps optimizers that know nothing of towers out of model functions.
#pragma once

#include <lockstep/strategy/replica_context.hpp>

namespace lockstep::detail {

/// While it lives, steps in `context` are refused on this thread, unless a TowerOptimizer was used before. Guards nest
/// like blocks.
class OptimizerGuard {
 public:
  explicit OptimizerGuard(const ReplicaContext& context);
  OptimizerGuard(const OptimizerGuard&) = delete;
  ~OptimizerGuard();

  /// Opens this thread's innermost guard: its model function has used a TowerOptimizer.
  static void note_tower_optimizer();

  /// Whether `context` is that of a guard.
  static bool is_in(const ReplicaContext& context);

  /// InvalidArgument where steps are refused. On one replica they are not: it gets what a wrapped optimizer would do.
  static void require_step_allowed(const ReplicaContext& context);

 private:
  const ReplicaContext& context_;
  bool open_;
  OptimizerGuard* outer_;
};

}  // namespace lockstep::detail
