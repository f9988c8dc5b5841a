#include "models/fit/evaluation_pass.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <numbers>
#include <optional>
#include <tuple>
#include <vector>

#include <lockstep/core/order/range.hpp>

#include "core/control/busy_clock.hpp"
#include "models/nn/shard_losses.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// Samples in a batch of evaluations: 1024 labels, or one sample per shard if that is more. The bits depend on it, so
/// it is the same for every global batch.
std::int64_t batch_of(const SampleSource& source, std::int64_t samples, int shards) {
  return std::min(samples, std::max<std::int64_t>(1024 / source.labels_per_sample(), shards));
}

/// What is added up over all samples: one lane of numbers each.
struct Sums {
  enum Lane : std::size_t { loss, weight, predicted, absolute, labels, squares, lanes };
  std::array<double, lanes> of{};
};

Sums sums_of(const ops::Kernels::BatchLoss& result, const SampleBatch& shard) {
  const ops::Kernels::BatchLoss::Weighed weighed = nn::weighed(result, shard);
  const ops::Kernels::BatchLoss::Residuals residuals = result.residuals.value_or(ops::Kernels::BatchLoss::Residuals{});
  return {{weighed.loss, weighed.weight, result.residuals ? weighed.weight : 0, residuals.absolute, residuals.labels,
           residuals.squares}};
}

/// Says how well numbers were predicted, if any were.
void add_regression(const Sums& all, double unit, Observer::Evaluation& report) {
  const double count = all.of[Sums::predicted];
  if (count == 0) return;
  const double spread = all.of[Sums::squares] - all.of[Sums::labels] * all.of[Sums::labels] / count;
  // Less than this is what rounding leaves of equal labels.
  const double rounding = count * std::numeric_limits<double>::epsilon() * all.of[Sums::squares];
  report.r_squared = spread > rounding ? 1 - all.of[Sums::loss] / spread : std::numeric_limits<double>::quiet_NaN();
  report.mean_absolute_error = all.of[Sums::absolute] / count * unit;
}

}  // namespace

double mean_per_label(double sum, double weight) {
  return weight != 0 ? sum / weight : 0 * sum;
}

EvaluationPass::EvaluationPass(Strategy& strategy, nn::Model& model, const SampleSource& test,
                               std::optional<std::int64_t> samples, const Shares& shares, ShardThreads* team)
    : strategy_{strategy},
      model_{model},
      test_{test},
      samples_{std::min(samples.value_or(test.count()), test.count())},
      batch_{batch_of(test, samples_, shares.shards())},
      shares_{shares},
      shards_{test, batch_, {.shards = shares.shards()}, shares.of(strategy.rank()), strategy.stream()},
      team_{team},
      sums_{DType::f64, Sums::lanes} {}

std::vector<ops::Kernels::BatchLoss> EvaluationPass::evaluate(const SampleBatch::Group& shards) {
  if (team_) return team_->evaluate_shards(shards.batches);
  std::vector<ops::Kernels::BatchLoss> results;
  for (const SampleBatch& shard : shards.batches) results.push_back(model_.evaluate_shard(shard));
  return results;
}

void EvaluationPass::run(Observer::Evaluation& report, Observer& observer, const Here& here) {
  const BusyClock::During evaluating{BusyClock::Part::evaluation};
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<std::int64_t> all(static_cast<std::size_t>(samples_));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);

  // Of each batch, those of this rank's subtrees; all are reduced at once, so an evaluation is one merge_call.
  const std::span<const Range> subtrees = shares_.subtrees_of(strategy_.rank());
  std::vector<std::vector<double>> parts(subtrees.size());
  std::vector<double> sums;
  std::int64_t correct = 0;
  const auto evaluate_shards = [&](ReplicaContext& context) {
    for (std::int64_t first = 0; first < samples_; first += batch_) {
      const auto size = std::min(batch_, samples_ - first);
      const auto samples = std::span{all}.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
      const SampleBatch::Group& shards = shards_.load_all(samples, 0, team_).group;
      const std::vector<ops::Kernels::BatchLoss> results = evaluate(shards);
      std::size_t shard = 0;
      for (std::size_t subtree = 0; subtree < subtrees.size(); ++subtree) {
        for (std::int64_t left = subtrees[subtree].size(); left > 0; --left, ++shard) {
          std::ranges::copy(sums_of(results[shard], shards.batches[shard]).of, sums_.next().elements<double>().begin());
          sums_.push();
          correct += results[shard].correct;
        }
        parts[subtree].resize(parts[subtree].size() + Sums::lanes);
        sums_.finish(nn::view_of(std::span{parts[subtree]}.last(Sums::lanes)));
      }
      observer.on_evaluating({.step = report.step,
                              .epoch = report.epoch,
                              .done = first + size,
                              .samples = samples_,
                              .seconds = seconds()});
    }
    test_.require_unchanged();
    sums = parts.back();
    Tensor brought = Tensor::from(sums, {std::ssize(sums)});
    std::optional<PlacedSum> placed;
    if (shares_.has_several()) {
      placed.emplace(shares_, strategy_.rank(), DType::f64, std::ssize(sums));
      for (std::size_t subtree = 0; subtree < parts.size(); ++subtree)
        std::ranges::copy(parts[subtree], placed->of_own(subtree).elements<double>().begin());
      brought = placed->integers();
    }
    const Reductions::OfShards of_shards{inside(strategy_).reductions(), shares_.shards()};
    const auto of_all = context.all_reduce(ReduceOp::sum, std::tuple{brought, correct}, here);
    if (!placed) sums = std::get<0>(of_all).to_vector<double>();
    if (placed) placed->finish(std::get<0>(of_all), nn::view_of(sums));
    correct = std::get<1>(of_all);
  };
  strategy_.run(evaluate_shards, {}, here);
  Sums total;
  for (std::size_t i = 0; i < sums.size(); ++i) total.of[i % Sums::lanes] += sums[i];
  const double weight = total.of[Sums::weight];
  report.samples = samples_;
  report.loss = mean_per_label(total.of[Sums::loss], weight);
  if (test_.labels_are_bytes()) report.bits_per_byte = report.loss / std::numbers::ln2;
  report.accuracy = mean_per_label(static_cast<double>(correct), weight);
  add_regression(total, test_.label_unit(), report);
  report.seconds = seconds();
}

}  // namespace lockstep
