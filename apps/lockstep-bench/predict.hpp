// How long a training step will take on a number of nodes, before there are so many.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/prediction.hpp"
#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step.hpp"

namespace lockstep::bench {

struct PredictOptions {
  static constexpr const char* name = "predict";

  /// The step: its model, hidden units, global batch and threads.
  StepOptions step;
  std::vector<int> nodes{2, 3, 4};
  /// If empty, measured between the ranks of the job.
  std::optional<Links> links;
  /// That all nodes share; 0 if they share none.
  int shared_cores = 0;
  std::int64_t warm_up = 1;
  std::int64_t iterations = 5;
};

/// COLL, on the CPU. Measures on each rank, for the samples that a rank has on so many nodes, the steps of a training
/// of one rank alone, and takes the slowest rank's. Without `links`, also measures those between the ranks, of which
/// each must be on a node of its own. `add` gets a row for each number of nodes, the same on every rank: what
/// predict_step makes of it, the `efficiency`, which is the step on one node over that on all of them, over their
/// number, and what limits the step.
///
/// ConfigError if there are no links to measure.
void predict(Runtime& runtime, const PredictOptions& options, const AddRow& add);

}  // namespace lockstep::bench
