// The forward pass over the test set.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/models/fit/observer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/order/shares.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_threads.hpp"

namespace lockstep {

/// The mean of losses that add up to `sum`, of labels that weigh `weight` together. 0 if they weigh nothing; a sum that
/// is no finite number gives none in any case.
double mean_per_label(double sum, double weight);

/// Evaluates a model on the first samples of a test set, again and again. The result does not depend on the number of
/// ranks.
class EvaluationPass {
 public:
  /// On `samples` samples of `test`, on all if it is empty or there are fewer; on the threads of `team`, or on the
  /// caller's. Everything must outlive it.
  EvaluationPass(Strategy& strategy, nn::Model& model, const SampleSource& test, std::optional<std::int64_t> samples,
                 const Shares& shares, ShardThreads* team);

  std::int64_t samples() const { return samples_; }

  /// COLL, blocking: one run, with one merge_call. Completes a report that has its step and epoch.
  void run(Observer::Evaluation& report, Observer& observer, const Here& here);

 private:
  std::vector<ops::Kernels::BatchLoss> evaluate(const SampleBatch::Group& shards);

  Strategy& strategy_;
  nn::Model& model_;
  const SampleSource& test_;
  std::int64_t samples_;
  std::int64_t batch_;
  const Shares& shares_;
  RankShards shards_;
  ShardThreads* team_;
  FixedOrderAccumulator sums_;  ///< of a batch, shard by shard
};

}  // namespace lockstep
