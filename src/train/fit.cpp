#include <chrono>
#include <cmath>
#include <deque>
#include <tuple>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/input/batch_schedule.hpp>
#include <lockstep/input/sample_order.hpp>
#include <lockstep/input/shards.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/reduce/fixed_order.hpp>
#include <lockstep/train/fit.hpp>

#include "reduce/arithmetic.hpp"
#include "train/shard_batch.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A number of its own for evaluations, because it is part of what the bits depend on: the same for every global batch.
constexpr std::int64_t evaluation_batch = 1024;

/// Sums of doubles in the fixed order, as those of the gradients.
class LossAccumulator {
 public:
  void push(double loss) {
    sum_.next().elements<double>()[0] = loss;
    sum_.push();
  }
  double finish() {
    double total = 0;
    sum_.finish({reinterpret_cast<std::byte*>(&total), {1}, DType::f64});
    return total;
  }

 private:
  FixedOrderAccumulator sum_{DType::f64, 1};
};

/// Part `part` of `parts` of some samples, cut as a batch is into shards.
std::span<const std::int64_t> part_of(std::span<const std::int64_t> samples, int parts, int part) {
  const Range range = shard_range(static_cast<std::int64_t>(samples.size()), parts, part);
  return samples.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size()));
}

/// The shards of one rank, of batches that come one after the other from `images`, each in micro-batches.
class RankShards {
 public:
  struct Cut {
    int shards;
    int micro_batches;  ///< of each shard
  };

  RankShards(const ImageSet& images, std::int64_t largest_batch, Cut cut, Strategy& strategy, int rank, DType dtype)
      : images_{images},
        cut_{cut},
        mine_{shards_of_rank(cut.shards, strategy.num_replicas_in_sync(), rank)},
        batch_{shard_capacity(shard_capacity(largest_batch, cut.shards), cut.micro_batches), images.features(), dtype,
               strategy.stream()} {}

  std::int64_t count() const { return mine_.size(); }

  /// Calls `body` with each of this rank's shards of the batch whose samples are `samples`, in order.
  template <class Body>
  void for_each(std::span<const std::int64_t> samples, Body&& body) {
    for (std::int64_t shard = mine_.first; shard < mine_.last; ++shard)
      body(part_of(samples, cut_.shards, static_cast<int>(shard)));
  }

  /// Calls `body` with each micro-batch of a shard, in order, and with its number.
  template <class Body>
  void for_each_micro_batch(std::span<const std::int64_t> shard, Body&& body) {
    for (int number = 0; number < cut_.micro_batches; ++number)
      body(batch_.load(images_, part_of(shard, cut_.micro_batches, number)), number);
  }

 private:
  const ImageSet& images_;
  Cut cut_;
  Range mine_;
  ShardBatch batch_;
};

/// The samples of each step, in the order of their epoch.
class StepSamples {
 public:
  StepSamples(const BatchSchedule& schedule, std::uint64_t seed) : schedule_{schedule}, seed_{seed} {}

  std::span<const std::int64_t> of(const ScheduledBatch& batch) {
    if (batch.epoch != epoch_) order_ = sample_order(schedule_.samples(), seed_, epoch_ = batch.epoch);
    return std::span{order_}.subspan(static_cast<std::size_t>(batch.positions.first),
                                     static_cast<std::size_t>(batch.positions.size()));
  }

 private:
  const BatchSchedule& schedule_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

/// The sums of the latest steps, as many as an epoch has.
class RecentLoss {
 public:
  explicit RecentLoss(std::int64_t steps) : steps_{static_cast<std::size_t>(steps)} {}

  void push(const StepSums& sums) {
    recent_.push_back(sums);
    if (recent_.size() > steps_) recent_.pop_front();
  }
  double mean() const {
    double loss = 0;
    std::int64_t samples = 0;
    for (const StepSums& sums : recent_) {
      loss += sums.loss;
      samples += sums.samples;
    }
    return loss / static_cast<double>(samples);
  }

 private:
  std::size_t steps_;
  std::deque<StepSums> recent_;
};

class Fit {
 public:
  Fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const ImageData& data, const FitOptions& options)
      : strategy_{strategy},
        model_{model},
        optimizer_{optimizer},
        data_{data},
        options_{options},
        rank_{strategy.group().rank()},
        schedule_{data.train.count(), options.global_batch},
        samples_{schedule_, options.seed},
        train_shards_{data.train, schedule_.largest_batch(), {options.shards, options.accumulate}, strategy, rank_,
                      dtype()},
        test_shards_{data.test, std::min(evaluation_batch, data.test.count()), {options.shards, 1}, strategy, rank_,
                     dtype()},
        buffer_{strategy.store(), model.variables()},
        gradients_{gradients_in_store(strategy.store(), model.variables())},
        gradient_sum_{buffer_.dtype(), buffer_.count(), strategy.stream()} {
    if (options.accumulate > 1) micro_gradients_ = Tensor::zeros(buffer_.dtype(), {buffer_.count()}, strategy.stream());
  }

  FitResult run(Observer& observer);

 private:
  DType dtype() const { return model_.variables().front().dtype(); }

  /// One run of the strategy. The sums over all replicas.
  StepSums step(std::int64_t index, const ScheduledBatch& batch);
  StepSums compute_gradients(std::span<const std::int64_t> samples);
  StepSums train_shard(std::span<const std::int64_t> shard, const nn::GradientBuffer& gradients);
  EvaluationReport evaluate();

  Strategy& strategy_;
  nn::Model& model_;
  Optimizer& optimizer_;
  const ImageData& data_;
  const FitOptions& options_;
  int rank_;
  BatchSchedule schedule_;
  StepSamples samples_;
  RankShards train_shards_;
  RankShards test_shards_;
  nn::GradientBuffer buffer_;
  std::vector<Gradient> gradients_;
  FixedOrderAccumulator gradient_sum_;
  Tensor micro_gradients_;  ///< of one micro-batch; empty where a shard is one
  LossAccumulator loss_sum_;
  bool diverged_ = false;
};

StepSums Fit::compute_gradients(std::span<const std::int64_t> samples) {
  StepSums sums;
  // The gradient of an only shard is the sum, and is written where that belongs.
  const bool only = train_shards_.count() == 1;
  train_shards_.for_each(samples, [&](std::span<const std::int64_t> shard) {
    const StepSums of_shard = train_shard(shard, only ? buffer_ : buffer_.at(gradient_sum_.next()));
    if (!only) gradient_sum_.push();
    loss_sum_.push(of_shard.loss);
    sums.samples += of_shard.samples;
    sums.correct += of_shard.correct;
  });
  if (!only) gradient_sum_.finish(buffer_.flat());
  sums.loss = loss_sum_.finish();
  return sums;
}

/// What the micro-batches of a shard add up to, first one first: so the sum of a shard is the same on whichever rank.
StepSums Fit::train_shard(std::span<const std::int64_t> shard, const nn::GradientBuffer& gradients) {
  StepSums sums;
  train_shards_.for_each_micro_batch(shard, [&](const SampleBatch& batch, int number) {
    const bool first = number == 0;
    const ops::CrossEntropy result =
        model_.train_shard(batch, {}, first ? gradients : gradients.at(micro_gradients_.view()));
    if (!first) detail::add(gradients.flat(), micro_gradients_.view(), strategy_.stream());
    sums.samples += batch.samples;
    sums.loss += result.loss_sum;
    sums.correct += result.correct;
  });
  return sums;
}

StepSums Fit::step(std::int64_t index, const ScheduledBatch& batch) {
  StepSums sums;
  strategy_.run([&](ReplicaContext& context) {
    const StepSums own = compute_gradients(samples_.of(batch));
    if (options_.fault && options_.fault->strike(rank_, index)) return;
    sums = optimizer_.apply_gradients(context, gradients_, own);
  });
  return sums;
}

EvaluationReport Fit::evaluate() {
  const auto start = Clock::now();
  const std::int64_t count = data_.test.count();
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);

  // This rank's part of each batch, reduced all at once: one merge_call an evaluation.
  std::vector<double> losses;
  std::int64_t correct = 0;
  strategy_.run([&](ReplicaContext& context) {
    for (std::int64_t first = 0; first < count; first += evaluation_batch) {
      const auto size = std::min(evaluation_batch, count - first);
      const auto samples = std::span{all}.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(size));
      test_shards_.for_each(samples, [&](std::span<const std::int64_t> shard) {
        test_shards_.for_each_micro_batch(shard, [&](const SampleBatch& batch, int) {
          const ops::CrossEntropy result = model_.evaluate_shard(batch);
          loss_sum_.push(result.loss_sum);
          correct += result.correct;
        });
      });
      losses.push_back(loss_sum_.finish());
    }
    const auto batches = static_cast<std::int64_t>(losses.size());
    const auto sums = context.all_reduce(ReduceOp::sum, std::tuple{Tensor::from(losses, {batches}), correct});
    losses = std::get<0>(sums).to_vector<double>();
    correct = std::get<1>(sums);
  });
  double loss = 0;
  for (const double each : losses) loss += each;
  EvaluationReport report{};
  report.loss = loss / static_cast<double>(count);
  report.accuracy = static_cast<double>(correct) / static_cast<double>(count);
  report.seconds = seconds_since(start);
  return report;
}

FitResult Fit::run(Observer& observer) {
  FitResult result;
  RecentLoss recent{schedule_.steps_per_epoch()};
  const std::int64_t epochs = schedule_.batch(options_.steps - 1).epoch + 1;
  for (std::int64_t index = 0; index < options_.steps; ++index) {
    const ScheduledBatch batch = schedule_.batch(index);
    const auto start = Clock::now();
    const StepSums sums = step(index, batch);
    result.seconds += seconds_since(start);
    result.steps = index + 1;
    result.samples += sums.samples;
    recent.push(sums);
    if (!std::isfinite(sums.loss) && !diverged_ && rank_ == 0)
      log::warning(
          fmt::format("the loss of step {} is not a finite number: the training has diverged; a smaller learning rate "
                      "may help",
                      result.steps));
    diverged_ = diverged_ || !std::isfinite(sums.loss);
    observer.on_step({.step = result.steps,
                      .steps = options_.steps,
                      .epoch = batch.epoch + 1,
                      .epochs = epochs,
                      .samples = result.samples,
                      .loss = sums.loss / static_cast<double>(sums.samples),
                      .seconds = result.seconds,
                      .samples_per_second = static_cast<double>(result.samples) / result.seconds});

    const bool due = options_.evaluate_every ? result.steps % *options_.evaluate_every == 0 : batch.ends_epoch;
    if (due || result.steps == options_.steps) {
      result.last_evaluation = evaluate();
      result.last_evaluation.step = result.steps;
      result.last_evaluation.epoch = batch.epoch + 1;
      observer.on_evaluation(result.last_evaluation);
    }
  }
  result.train_loss = recent.mean();
  return result;
}

}  // namespace

FitResult fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const ImageData& data,
              const FitOptions& options, Observer& observer) {
  if (options.steps < 1) throw InvalidArgument{fmt::format("steps: {}, expected at least 1", options.steps)};
  if (options.evaluate_every && *options.evaluate_every < 1)
    throw InvalidArgument{fmt::format("steps between evaluations: {}, expected at least 1", *options.evaluate_every)};
  if (options.accumulate < 1)
    throw InvalidArgument{fmt::format("micro-batches of a shard: {}, expected at least 1", options.accumulate)};
  if (strategy.store().has_unsealed()) strategy.seal();
  if (options.fault && strategy.group().rank() == 0)
    log::warning(fmt::format("LOCKSTEP_FAULT: replica {} will fail ({}) in step {}", options.fault->rank,
                             name_of(options.fault->kind), options.fault->step));
  return Fit{strategy, model, optimizer, data, options}.run(observer);
}

}  // namespace lockstep
