#include <chrono>
#include <cmath>
#include <deque>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
#include "models/fit/accumulation.hpp"
#include "models/fit/evaluation_pass.hpp"
#include "models/fit/fit_options.hpp"
#include "models/fit/fit_start.hpp"
#include "models/fit/frozen_variables.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/fit/joint_gradients.hpp"
#include "models/fit/parts_report.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_threads.hpp"
#include "models/fit/step_checks.hpp"
#include "models/fit/step_faults.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/nn/joint_model.hpp"
#include "models/nn/shard_losses.hpp"
#include "models/ops/answer.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/optim/computed_step.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/strategy/fit_progress.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

/// Keeps the losses of as many steps as an epoch has.
void push_recent(std::deque<ops::Kernels::BatchLoss::Weighed>& recent, const Optimizer::StepSums& sums,
                 std::int64_t steps) {
  recent.push_back({sums.loss, sums.weight.value_or(0)});
  if (std::ssize(recent) > steps) recent.pop_front();
}

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

/// Sends each gradient of a step as soon as the model has it, but for frozen variables. If `faults` is not null, they
/// see it first.
class SendWhenReady final : public nn::GradientBuffer::Listener {
 public:
  SendWhenReady(Optimizer::AgreedStep& step, const nn::GradientBuffer& buffer, std::span<const std::string> frozen,
                const StepFaults* faults)
      : step_{step}, buffer_{buffer}, variables_{buffer.variables()}, frozen_{frozen}, faults_{faults} {}

  void on_ready(std::size_t variable) override {
    if (faults_) faults_->computed(StepFaults::whole, variable, buffer_.of(variables_[variable]));
    if (!is_frozen(frozen_, variables_[variable].name())) step_.ready(variables_[variable]);
  }

 private:
  Optimizer::AgreedStep& step_;
  const nn::GradientBuffer& buffer_;
  std::span<const Variable> variables_;
  std::span<const std::string> frozen_;
  const StepFaults* faults_;
};

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
                takes_audited(), faults_} {
    sum_ = sum_.with_statistics(statistics_.view());
    place_subtrees();
    if (nn::JointModel* const joint = model.joint()) {
      joint_gradients_.emplace(*joint, sum_, train_shards_);
      sums_on_the_way_ = joint_gradients_->sums();
    } else if (options.accumulate > 1) {
      accumulation_.emplace(sum_, options.accumulate);
      if (threads_ && rank_ == 0)
        log::warning(fmt::format("{} threads evaluate, but one trains: micro-batches are computed one after the other",
                                 options.threads));
    }
  }

  FitResult run(Observer& observer);

 private:
  /// Whether start_gradients computes the rank's shards, in one call of the model.
  bool takes_audited() const {
    return !threads_ && options_.accumulate == 1 && !model_.joint() && !shares_.has_several();
  }

  /// One run of the strategy. Returns the sums over all replicas. Their `samples` count labels. Losses and gradients
  /// are divided by what these weigh.
  Optimizer::StepSums step(std::int64_t index, const ScheduledBatch& batch);
  bool attests_in(std::int64_t step) const;  ///< besides the first steps
  void load_ahead();
  Optimizer::StepSums compute_gradients(std::int64_t step, std::span<const std::int64_t> samples,
                                        Optimizer::AgreedStep& agreed);
  void place_subtrees();
  StartedShards start_gradients(std::int64_t step, const RankShards::Loaded& shards, const Subtree& subtree);
  StartedShards accumulate_gradients(std::int64_t step, std::span<const std::int64_t> samples, const Subtree& subtree);
  /// Of the micro-batch of each shard, the first of which is number `first` of this rank's.
  void note_read(const SampleBatch::Group& read, std::int64_t first);
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
  nn::GradientBuffer sum_;  ///< gradients and statistics of this rank's last subtree, and of all ranks, in the store
  Tensor statistics_;
  std::optional<Subtrees> several_;  ///< for the gradients, if a rank has several
  std::vector<Tensor> other_statistics_;
  std::vector<Subtree> subtrees_;  ///< of this rank
  std::vector<Optimizer::Gradient> gradients_;
  RankShards train_shards_;
  std::unique_ptr<ShardThreads> threads_;  ///< null: the program's own computes all shards
  StepFaults faults_;
  EvaluationPass evaluation_;
  StepChecks checks_;
  std::optional<Accumulation> accumulation_;       ///< empty if a shard is one micro-batch, or for a joint model
  std::optional<JointGradients> joint_gradients_;  ///< for a joint model
  Optimizer::Computation::Sums sums_on_the_way_;   ///< that it makes over the ranks
  std::vector<std::int64_t> integers_;             ///< of `checks_`, in the last sum of a step
  bool wants_norm_ = false;                        ///< the observer
  bool diverged_ = false;
};

Optimizer::StepSums Fit::compute_gradients(std::int64_t step, std::span<const std::int64_t> samples,
                                           Optimizer::AgreedStep& agreed) {
  detail::ComputedStep& inside = detail::ComputedStep::of(agreed);
  inside.keeps_norm = wants_norm_;
  if (threads_)
    inside.threads = {.count = static_cast<std::size_t>(threads_->count()),
                      .run = [this](const ShardThreads::Work& work) { threads_->run(work, "in an update"); }};
  BusyClock::enter(BusyClock::Part::data);
  // Where single shards are looked at, these are spoilt.
  SendWhenReady ready{agreed, sum_, options_.frozen, checks_.watch() ? nullptr : &faults_};
  std::vector<Subtree> subtrees = subtrees_;
  subtrees.back().sum = sum_.reporting_to(ready);
  std::vector<StartedShards> started;
  if (joint_gradients_) {
    const auto read = [&](const SampleBatch::Group& micro_batch) { note_read(micro_batch, 0); };
    started = joint_gradients_->compute(step, samples, inside.sums, subtrees, {read, checks_.watch()});
  } else if (accumulation_) {
    for (const Subtree& each : subtrees) started.push_back(accumulate_gradients(step, samples, each));
  } else {
    const std::optional<std::int64_t> audited = checks_.audited();
    const RankShards::Loaded shards =
        audited ? train_shards_.load_all_and(samples, *audited) : train_shards_.load_all(samples, 0, threads_.get());
    note_read(shards.group, 0);
    for (const Subtree& each : subtrees) started.push_back(start_gradients(step, shards, each));
  }
  checks_.bring(samples, integers_);
  Optimizer::StepSums own;
  for (const StartedShards& each : started) own.samples += each.labels;
  inside.complete = [this, &inside, started = std::move(started)](Optimizer::StepSums& sums) {
    for (std::size_t i = 0; i < started.size(); ++i) {
      const ops::Kernels::BatchLoss result = started[i].loss.read();
      sums.correct += result.correct;
      inside.subtrees.push_back({result.loss_sum, result.weight.value_or(static_cast<double>(started[i].labels)),
                                 subtrees_[i].sum.statistics()});
    }
  };
  return own;
}

/// The last subtree is added up in the store, and the others first: so sums can be sent while the last one is computed.
void Fit::place_subtrees() {
  if (shares_.has_several()) several_.emplace(inside(strategy_).reductions(), shares_, rank_, sum_.flat());
  for (const Range& each : shares_.subtrees_of(rank_)) {
    const std::int64_t before = shares_.of(rank_).first;
    subtrees_.push_back({{each.first - before, each.last - before}, sum_});
    if (each.last == shares_.of(rank_).last) return;
    const Tensor& statistics = other_statistics_.emplace_back(Tensor::zeros(sum_.dtype(), statistics_.shape()));
    subtrees_.back().sum =
        sum_.at(several_->others_of(sum_.flat())[subtrees_.size() - 1]).with_statistics(statistics.view());
  }
}

StartedShards Fit::start_gradients(std::int64_t step, const RankShards::Loaded& shards, const Subtree& subtree) {
  BusyClock::enter(BusyClock::Part::forward);
  std::optional<SampleBatch::Group> part;
  if (several_) part = part_of(shards.group, subtree.shards);
  const SampleBatch::Group& own = part ? *part : shards.group;
  const std::vector<nn::Model::ShardPlace> all = shards.places(step);
  const auto places = std::span{all}.subspan(static_cast<std::size_t>(subtree.shards.first), own.batches.size());
  const std::int64_t labels = own.counted_labels() - (checks_.audited() ? own.batches.back().counted_labels() : 0);
  nn::ShardWatch* const watch = checks_.watch(subtree.shards.first);
  if (threads_) return {labels, threads_->train_shards(own, places, subtree.sum, watch)};
  if (watch) return {labels, model_.train_watched(own, places, subtree.sum, *watch)};
  return {labels, model_.start_shards(own, places, subtree.sum)};
}

void Fit::note_read(const SampleBatch::Group& read, std::int64_t first) {
  for (const SampleBatch& each : read.batches) faults_.read(each);
  checks_.read(first, read);
}

/// Shards outside, micro-batches inside, so that the sum of a shard is the same on every rank.
StartedShards Fit::accumulate_gradients(std::int64_t step, std::span<const std::int64_t> samples,
                                        const Subtree& subtree) {
  std::int64_t labels = 0;
  nn::ShardLosses losses;
  nn::ShardWatch* const watch = checks_.watch(subtree.shards.first);
  accumulation_->begin(subtree.sum, subtree.shards.size(), watch);
  for (std::int64_t shard = 0; shard < subtree.shards.size(); ++shard) {
    accumulation_->begin_shard(shard);
    for (int number = 0; number < options_.accumulate; ++number) {
      BusyClock::enter(BusyClock::Part::data);
      const RankShards::Loaded micro_batch = train_shards_.load_one(samples, subtree.shards.first + shard, number);
      note_read(micro_batch.group, subtree.shards.first + shard);
      BusyClock::enter(BusyClock::Part::forward);
      ops::Answer<ops::Kernels::BatchLoss> loss =
          model_.start_shards(micro_batch.group, micro_batch.places(step), accumulation_->next());
      losses.push(shard, std::move(loss), micro_batch.group.counted_labels());
      accumulation_->push();
      labels += micro_batch.group.counted_labels();
    }
    accumulation_->end_shard();
  }
  accumulation_->finish();
  if (watch) return {labels, losses.read_shown_to(*watch, strategy_.stream())};
  return {labels, {strategy_.stream(), [losses = std::move(losses)] { return losses.read(); }}};
}

Optimizer::StepSums Fit::step(std::int64_t index, const ScheduledBatch& batch) {
  Optimizer::StepSums sums;
  strategy_.set_step(index + 1);
  faults_.begin(index);
  checks_.begin(index);
  const auto replica_step = [&](ReplicaContext& context) {
    const BusyClock::During own{BusyClock::Part::other};
    if (faults_.skips_merge()) return;
    const auto compute = [&](Optimizer::AgreedStep& agreed) {
      const Optimizer::StepSums own = compute_gradients(index, samples_.of(batch), agreed);
      faults_.end(model_.variables());
      // Here a rank's failure is one of the step, of which all others learn.
      if (batch.ends_epoch || index + 1 == options_.steps) samples_.source().require_unchanged();
      return own;
    };
    integers_.assign(static_cast<std::size_t>(checks_.integers()), 0);
    Optimizer::Request request{.gradients = gradients_,
                               .computation = {compute, sums_on_the_way_},
                               .statistics = statistics_.view(),
                               .shards = options_.shards,
                               .integers = integers_};
    if (checks_.watch()) request.apply_only_if = [this] { return checks_.take(integers_); };
    std::optional<Reductions::OfSubtrees> of_subtrees;
    if (several_) of_subtrees.emplace(inside(strategy_).reductions(), *several_);
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

/// COLL: every rank has the same loss, and comes to the same judgement.
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
  const bool shard_by_shard = accumulation_.has_value();
  train_shards_.load_ahead(
      {.steps = options_.prefetch,
       .order = shard_by_shard ? RankShards::Order::shard_by_shard : RankShards::Order::all_shards,
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
    result.seconds += seconds_since(start);
    result.steps = index + 1;
    result.samples += batch.positions.size();
    result.samples_per_second = static_cast<double>(result.samples - samples_before) / result.seconds;
    const bool due = options_.evaluate_every ? result.steps % *options_.evaluate_every == 0 : batch.ends_epoch;
    if (attests_in(index) && !due && !is_last) parts.gather(result.steps);
    push_recent(state.recent, sums, schedule_.steps_per_epoch());
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
  if (strategy.store().has_unsealed()) strategy.seal(here);
  if (fault && strategy.rank() == 0) log::warning("LOCKSTEP_FAULT: " + fault->announcement());
  return Fit{strategy, model, optimizer, data, from_start, shares, fault, here}.run(observer);
}

}  // namespace lockstep
