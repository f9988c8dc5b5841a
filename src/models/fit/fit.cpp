#include <chrono>
#include <cmath>
#include <deque>
#include <memory>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>

#include "core/control/busy_clock.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/order/sample_order.hpp"
#include "core/order/shares.hpp"
#include "models/fit/evaluation_pass.hpp"
#include "models/fit/fit_start.hpp"
#include "models/fit/frozen_variables.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/fit/parts_report.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_threads.hpp"
#include "models/fit/step_checks.hpp"
#include "models/fit/step_faults.hpp"
#include "models/fit/step_gradients.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/nn/joint_model.hpp"
#include "models/ops/answer.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/optim/computed_step.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/strategy/fit_progress.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

/// The samples of each step, in their epoch's order.
class StepSamples {
 public:
  StepSamples(const SampleSource& source, const BatchSchedule& schedule, std::uint64_t seed)
      : source_{source}, schedule_{schedule}, seed_{seed} {}

  const SampleSource& source() const { return source_; }

  std::span<const std::int64_t> of(const ScheduledBatch& batch) {
    if (batch.epoch != epoch_) {
      order_ = sample_order(schedule_.samples(), seed_, epoch_ = batch.epoch);
      if (source_.varies_by_epoch())
        for (std::int64_t& sample : order_) sample += epoch_ * schedule_.samples();
    }
    return std::span{order_}.subspan(static_cast<std::size_t>(batch.positions.first),
                                     static_cast<std::size_t>(batch.positions.size()));
  }

 private:
  const SampleSource& source_;
  const BatchSchedule& schedule_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
  std::vector<std::int64_t> order_;
};

double mean_of(const std::deque<ops::Kernels::BatchLoss::Weighed>& recent) {
  ops::Kernels::BatchLoss::Weighed sum;
  for (const ops::Kernels::BatchLoss::Weighed& step : recent) {
    sum.loss += step.loss;
    sum.weight += step.weight;
  }
  return mean_per_label(sum.loss, sum.weight);
}

/// The samples of the first `steps` steps.
std::int64_t samples_in(const BatchSchedule& schedule, std::int64_t steps) {
  const std::int64_t epochs = steps / schedule.steps_per_epoch();
  std::int64_t samples = epochs * schedule.samples();
  for (std::int64_t step = epochs * schedule.steps_per_epoch(); step < steps; ++step)
    samples += schedule.batch(step).positions.size();
  return samples;
}

class Fit {
 public:
  Fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const FitOptions::Samples& data,
      const FitOptions& options, Shares shares, const std::optional<InjectedFault>& fault, const Here& here)
      : strategy_{strategy},
        model_{model},
        optimizer_{optimizer},
        options_{options},
        here_{here},
        rank_{strategy.rank()},
        shares_{std::move(shares)},
        schedule_{data.train.count(), options.global_batch},
        samples_{data.train, schedule_, options.seed},
        sum_{strategy.store(), model.variables()},
        statistics_{Tensor::zeros(sum_.dtype(), {model.statistics()}, strategy.stream())},
        gradients_{
            Optimizer::gradients_in_store(strategy.store(), updated_variables(model.variables(), options.frozen))},
        train_shards_{data.train,
                      schedule_.largest_batch(),
                      {options.shards, options.accumulate},
                      shares_.of(rank_),
                      strategy.stream()},
        threads_{ShardThreads::make(strategy, model, options.threads, train_shards_.count())},
        faults_{fault, rank_, train_shards_.count(), model.variables().size(), strategy.stream()},
        evaluation_{strategy, model, data.test, options.evaluation_samples, shares_, threads_.get()},
        checks_{strategy,        model,  sum_.with_statistics(statistics_.view()), train_shards_, shares_, options,
                takes_audited(), faults_},
        computation_{strategy,      model,          sum_.with_statistics(statistics_.view()),
                     train_shards_, threads_.get(), shares_,
                     options_,      faults_,        checks_} {}

  FitResult run(Observer& observer);

 private:
  /// Whether one call of the model computes the rank's shards.
  bool takes_audited() const {
    return !threads_ && options_.accumulate == 1 && !inside(model_).joint() && !shares_.has_several();
  }

  /// One run of the strategy. Returns the sums over all replicas. Their `samples` count labels. Losses and gradients
  /// are divided by what these weigh.
  Optimizer::StepSums step(std::int64_t index, const ScheduledBatch& batch);
  bool attests_in(std::int64_t step) const;  ///< besides the first steps
  void load_ahead();
  std::int64_t evaluations_from(std::int64_t step) const;
  void evaluate(FitResult& result, std::int64_t epoch, Observer& observer);
  Observer::Step report_of(const FitResult& result, const ScheduledBatch& batch, double loss) const;
  std::string divergence_hint() const;
  void judge_loss(double loss, const std::string& whose);

  Strategy& strategy_;
  nn::Model& model_;
  Optimizer& optimizer_;
  const FitOptions& options_;
  Here here_;  ///< where the program called fit: its runs and calls are there for messages
  int rank_;
  Shares shares_;
  BatchSchedule schedule_;
  StepSamples samples_;
  nn::GradientBuffer sum_;  ///< in the store
  Tensor statistics_;
  std::vector<Optimizer::Gradient> gradients_;
  RankShards train_shards_;
  std::unique_ptr<ShardThreads> threads_;  ///< null: the program's own computes all shards
  StepFaults faults_;
  EvaluationPass evaluation_;
  StepChecks checks_;
  StepGradients computation_;
  std::vector<std::int64_t> integers_;  ///< of `checks_`, in the last sum of a step
  bool wants_norm_ = false;             ///< the observer
  bool diverged_ = false;
};

Optimizer::StepSums Fit::step(std::int64_t index, const ScheduledBatch& batch) {
  Optimizer::StepSums sums;
  strategy_.set_step(index + 1);
  faults_.begin(index);
  checks_.begin(index);
  const auto replica_step = [&](ReplicaContext& context) {
    const BusyClock::During own{BusyClock::Part::other};
    if (faults_.skips_merge()) return;
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      detail::ComputedStep::of(agreed).keeps_norm = wants_norm_;
      const std::span<const std::int64_t> samples = samples_.of(batch);
      const Optimizer::StepSums own = computation_.start(index, samples, agreed);
      checks_.bring(samples, integers_);
      faults_.end(model_.variables());
      // Here a rank's failure is one of the step, of which all others learn.
      if (batch.ends_epoch || index + 1 == options_.steps) samples_.source().require_unchanged();
      return own;
    };
    integers_.assign(static_cast<std::size_t>(checks_.integers()), 0);
    Optimizer::Request request{.gradients = gradients_,
                               .computation = {compute, computation_.sums_on_the_way()},
                               .statistics = statistics_.view(),
                               .shards = options_.shards,
                               .integers = integers_};
    if (checks_.looks()) request.apply_only_if = [this] { return checks_.take(integers_); };
    const Reductions::OfSubtrees of_subtrees{inside(strategy_).reductions(), computation_.subtrees()};
    sums = optimizer_.apply_gradients(context, request, here_);
    // If another rank failed in this step, or it did not pass its audit, the sums have 0 samples, and there are no
    // statistics to absorb.
    model_.absorb_statistics(statistics_.view(), sums.samples > 0 ? batch.positions.size() : 0);
    if (attests_in(index) || index - options_.start->steps < options_.attest_first)
      context.attest_at_end(model_.moving_averages(), here_);
  };
  strategy_.run(replica_step, {}, here_);
  checks_.require_passed(samples_.of(batch), here_);
  return sums;
}

bool Fit::attests_in(std::int64_t step) const {
  return options_.attest_every && ((step + 1) % *options_.attest_every == 0 || step + 1 == options_.steps);
}

/// The number of evaluations after `step` and all that follow.
std::int64_t Fit::evaluations_from(std::int64_t step) const {
  const std::int64_t interval = options_.evaluate_every.value_or(schedule_.steps_per_epoch());
  return options_.steps / interval - (step - 1) / interval + (options_.steps % interval != 0 ? 1 : 0);
}

/// Without the sign of a NaN, which means nothing.
std::string four_digits(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.4g}", value);
}

/// LOCAL. What in the data may have made a training diverge: that they are others by now, or else what the program
/// says.
std::string Fit::divergence_hint() const {
  try {
    samples_.source().require_unchanged();
  } catch (const Error& error) {
    return fmt::format("; its data have changed since it began: {}", error.what());
  }
  return options_.divergence_hint ? options_.divergence_hint() : "";
}

/// COLL: every rank has the same loss, and decides alike.
void Fit::judge_loss(double loss, const std::string& whose) {
  if (std::isfinite(loss) || diverged_) return;
  diverged_ = true;
  const std::string line = fmt::format(
      "the training has diverged: {} is {}, with learning rate {} and gradient norm {}; a lower "
      "learning rate, a warm-up or a clipped norm may help{}",
      whose, four_digits(loss), optimizer_.learning_rate(), four_digits(optimizer_.gradient_norm()), divergence_hint());
  if (options_.on_divergence == FitOptions::OnDivergence::stop)
    inside(strategy_).group().meeting().fail(std::make_exception_ptr(DivergenceError{line}));
  if (rank_ == 0) log::warning(line);
}

/// The order of the samples is computed once more, on the thread that loads.
void Fit::load_ahead() {
  train_shards_.load_ahead(
      {.steps = options_.prefetch,
       .order = computation_.order(),
       .where = inside(strategy_).group().job().may_start_threads() ? WorkAhead::Where::on_thread
                                                                    : WorkAhead::Where::in_turn,
       .of = {options_.start->steps, options_.steps},
       .samples = [this, samples = samples_](std::int64_t step) mutable { return samples.of(schedule_.batch(step)); }});
}

void Fit::evaluate(FitResult& result, std::int64_t epoch, Observer& observer) {
  strategy_.set_step(result.steps, detail::RunKind::evaluation);
  result.last_evaluation = {.step = result.steps, .epoch = epoch};
  evaluation_.run(result.last_evaluation, observer, here_);
}

Observer::Step Fit::report_of(const FitResult& result, const ScheduledBatch& batch, double loss) const {
  return {.step = result.steps,
          .steps = options_.steps,
          .epoch = batch.epoch + 1,
          .epochs = schedule_.batch(options_.steps - 1).epoch + 1,
          .samples = result.samples,
          .batch = batch.positions.size(),
          .loss = loss,
          .learning_rate = optimizer_.learning_rate(),
          .gradient_norm = wants_norm_ ? std::optional{optimizer_.gradient_norm()} : std::nullopt,
          .evaluations_left = evaluations_from(result.steps),
          .evaluation_samples = evaluation_.samples(),
          .seconds = result.seconds,
          .samples_per_second = result.samples_per_second};
}

FitResult Fit::run(Observer& observer) {
  BusyClock clock{inside(strategy_).group().job().time()};
  faults_.slow_down(clock);
  PartsReport parts{strategy_, clock, options_.start->steps};
  const MeetingPoint::NamedSteps named = inside(strategy_).group().meeting().keep_named_steps();
  strategy_.attest_first(options_.attest_first);
  if (options_.prefetch > 0 && options_.start->steps < options_.steps) load_ahead();
  Observer::State state = *options_.start;
  const detail::FitProgress::Underway underway{detail::FitProgress::of(strategy_.store()),
                                               [&state] { return state.to_text(); }};
  const std::int64_t samples_before = samples_in(schedule_, state.steps);
  FitResult result{.steps = state.steps, .samples = samples_before};
  wants_norm_ = observer.wants_gradient_norm();
  Observer nobody;  // is told of an evaluation that an earlier run has told of
  if (state.steps == options_.steps) evaluate(result, schedule_.batch(options_.steps - 1).epoch + 1, nobody);
  for (std::int64_t index = state.steps; index < options_.steps; ++index) {
    if (strategy_.stop_requested()) {
      result.stopped = true;
      if (index > options_.start->steps) observer.on_stop(state);
      break;
    }
    const ScheduledBatch batch = schedule_.batch(index);
    const bool is_last = index + 1 == options_.steps;
    const auto start = Clock::now();
    Optimizer::StepSums sums;
    try {
      sums = step(index, batch);
    } catch (const DriftError& found) {
      observer.on_drift(index + 1, found);
      throw;
    } catch (const AuditError& found) {
      observer.on_audit(found);
      throw;
    }
    result.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    result.steps = index + 1;
    result.samples += batch.positions.size();
    result.samples_per_second = static_cast<double>(result.samples - samples_before) / result.seconds;
    const bool due = options_.evaluate_every ? result.steps % *options_.evaluate_every == 0 : batch.ends_epoch;
    if (attests_in(index) && !due && !is_last) parts.gather(result.steps);
    state.recent.push_back({sums.loss, sums.weight.value_or(0)});
    if (std::ssize(state.recent) > schedule_.steps_per_epoch()) state.recent.pop_front();
    state.steps = result.steps;  // before an observer saves it
    const double loss = mean_per_label(sums.loss, sums.weight.value_or(0));
    observer.on_step(report_of(result, batch, loss));
    checks_.tell(observer, result.steps, loss);
    parts.tell(observer);
    judge_loss(loss, fmt::format("the loss of step {}", result.steps));

    if (due || is_last) {
      evaluate(result, batch.epoch + 1, observer);
      if (!is_last) parts.gather(result.steps);
      observer.on_evaluation(result.last_evaluation);
      parts.tell(observer);
      judge_loss(result.last_evaluation.loss, fmt::format("the test loss after step {}", result.steps));
    }
    observer.on_step_end(state);
  }
  if (!result.stopped && options_.start->steps < options_.steps) {
    // What the chief does alone after the last step keeps the others waiting too.
    inside(strategy_).agree(TagKind::chief, here_, {});
    parts.gather(result.steps);
    parts.tell(observer);
  }
  result.train_loss = mean_of(state.recent);
  result.parts = parts.whole();
  return result;
}

}  // namespace

FitResult fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const FitOptions::Samples& data,
              const FitOptions& options, Observer& observer, Here here) {
  return fit_with_fault(strategy, model, optimizer, data, options, observer, std::nullopt, here);
}

FitResult fit_with_fault(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const FitOptions::Samples& data,
                         const FitOptions& options, Observer& observer, const std::optional<InjectedFault>& fault,
                         Here here) {
  FitOptions from_start = options;
  from_start.start = detail::start_of(strategy.store(), options);
  detail::require_valid(from_start, model, data);
  const Shares shares =
      agree_on_shares(strategy, options.shards, options.threads > 1, detail::text_of(data, from_start), here);
  if (inside(strategy.store()).has_unsealed()) strategy.seal(here);
  if (fault && strategy.rank() == 0) log::warning("LOCKSTEP_FAULT: " + fault->announcement());
  return Fit{strategy, model, optimizer, data, from_start, shares, fault, here}.run(observer);
}

}  // namespace lockstep
