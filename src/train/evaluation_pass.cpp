#include "train/evaluation_pass.hpp"

#include <algorithm>
#include <chrono>
#include <numbers>
#include <tuple>
#include <vector>

#include <lockstep/input/shards.hpp>

namespace lockstep {
namespace {

/// Samples in a batch of evaluations: 1024 labels, or one sample per shard if that is more. The bits depend on it, so
/// it is the same for every global batch.
std::int64_t batch_of(const SampleSource& source, std::int64_t samples, int shards) {
  return std::min(samples, std::max<std::int64_t>(1024 / source.labels_per_sample(), shards));
}

}  // namespace

double mean_per_label(double sum, double weight) {
  return weight != 0 ? sum / weight : 0 * sum;
}

EvaluationPass::EvaluationPass(Strategy& strategy, nn::Model& model, const SampleSource& test,
                               std::optional<std::int64_t> samples, int shards, ShardThreads* team)
    : strategy_{strategy},
      model_{model},
      test_{test},
      samples_{std::min(samples.value_or(test.count()), test.count())},
      batch_{batch_of(test, samples_, shards)},
      shards_{test,
              batch_,
              {.shards = shards},
              shards_of_rank(shards, strategy.num_replicas_in_sync(), strategy.group().rank()),
              strategy.stream()},
      team_{team} {}

std::vector<ops::BatchLoss> EvaluationPass::evaluate(const BatchGroup& shards) {
  if (team_) return team_->evaluate_shards(shards.batches);
  std::vector<ops::BatchLoss> results;
  for (const SampleBatch& shard : shards.batches) results.push_back(model_.evaluate_shard(shard));
  return results;
}

void EvaluationPass::run(EvaluationReport& report, Observer& observer, const Here& here) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<std::int64_t> all(static_cast<std::size_t>(samples_));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);

  // This rank's part of each batch, loss and weight; all are reduced at once, so an evaluation is one merge_call.
  std::vector<double> losses;
  std::int64_t correct = 0;
  const auto evaluate_shards = [&](ReplicaContext& context) {
    for (std::int64_t first = 0; first < samples_; first += batch_) {
      const auto size = std::min(batch_, samples_ - first);
      const auto samples = std::span{all}.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
      const BatchGroup& shards = shards_.load_all(samples).group;
      const std::vector<ops::BatchLoss> results = evaluate(shards);
      for (std::size_t shard = 0; shard < results.size(); ++shard) {
        loss_.push(nn::weighed(results[shard], shards.batches[shard]));
        correct += results[shard].correct;
      }
      const nn::WeighedLoss of_batch = loss_.finish();
      losses.insert(losses.end(), {of_batch.loss, of_batch.weight});
      observer.on_evaluating({.step = report.step,
                              .epoch = report.epoch,
                              .done = first + size,
                              .samples = samples_,
                              .seconds = seconds()});
    }
    const auto numbers = static_cast<std::int64_t>(losses.size());
    const auto sums = context.all_reduce(ReduceOp::sum, std::tuple{Tensor::from(losses, {numbers}), correct}, here);
    losses = std::get<0>(sums).to_vector<double>();
    correct = std::get<1>(sums);
  };
  strategy_.run(evaluate_shards, here);
  double loss = 0, weight = 0;
  for (std::size_t i = 0; i < losses.size(); i += 2) {
    loss += losses[i];
    weight += losses[i + 1];
  }
  report.samples = samples_;
  report.loss = mean_per_label(loss, weight);
  if (test_.labels_are_bytes()) report.bits_per_byte = report.loss / std::numbers::ln2;
  report.accuracy = mean_per_label(static_cast<double>(correct), weight);
  report.seconds = seconds();
}

}  // namespace lockstep
