// What training, evaluating and predicting begin with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "apps/lockstep-train/tasks/task.hpp"
#include "apps/lockstep-train/training.hpp"

namespace lockstep {

struct TrainingSetup {
  int shards = 1;
  int threads = 1;  ///< that compute whole shards; those of the kernels are theirs alone
  std::shared_ptr<const ops::Kernels> kernels;
  std::unique_ptr<TrainingTask> task;
};

/// Fills in the defaults: all options have a value then, but for the number of classes, which the data decide, and the
/// vocabulary, which texts do not have.
TrainingOptions with_defaults(TrainingOptions options);

/// COLL. Runs `work` on every rank before the first step; messages call this "the setup".
void run_setup(Strategy& strategy, const std::function<void()>& work, Here here = Here::current());

/// COLL, in a run: what it throws on one rank alone then fails on all. Fills in the options that the data decide.
/// `options` must outlive the result.
TrainingSetup set_up(Strategy& strategy, TrainingOptions& options, const DataRequest& request);

/// COLL. MismatchError if the ranks loaded different data or their kernels differ.
void require_same_on_all(Strategy& strategy, const TrainingSetup& setup);

/// COLL. The text that the model is asked to write, if its test loss after `step` is `loss`. The chief generates it;
/// the others wait. `step` is 0 if it is not known.
std::string write_sample(Strategy& strategy, TrainingTask& task, std::int64_t step, double loss);

}  // namespace lockstep
