// The optimizer that the options ask for.
#pragma once

#include <cstdint>
#include <memory>

#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/optim/optimizer.hpp>

#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep {

/// Number of values that an optimizer keeps for each weight.
int slots_of(OptimizerKind optimizer);

/// For a run of `steps`, of a model with these kernels. ConfigError if warm-up takes all of them. All defaults in
/// `options` must be filled in.
std::unique_ptr<Optimizer> make_optimizer(const TrainingOptions& options, std::int64_t steps,
                                          const ops::Kernels& kernels);

}  // namespace lockstep
