#include "apps/lockstep-train/training.hpp"

#include <limits>
#include <memory>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/checkpoint/checkpoint_manager.hpp>
#include <lockstep/checkpoint/weights.hpp>
#include <lockstep/input/batch_schedule.hpp>
#include <lockstep/input/shards.hpp>

#include "apps/lockstep-train/data/index_file.hpp"
#include "apps/lockstep-train/reports/metrics_file.hpp"
#include "apps/lockstep-train/reports/progress.hpp"
#include "apps/lockstep-train/saved/checkpoint_observer.hpp"
#include "apps/lockstep-train/saved/exported_weights.hpp"
#include "apps/lockstep-train/saved/held_checkpoints.hpp"
#include "apps/lockstep-train/saved/restored_weights.hpp"
#include "apps/lockstep-train/saved/training_difference.hpp"
#include "apps/lockstep-train/saved/training_facts.hpp"
#include "apps/lockstep-train/tasks/optimizer_choice.hpp"
#include "apps/lockstep-train/training_setup.hpp"
#include "fit/frozen_variables.hpp"
#include "fit/injected_fault.hpp"

namespace lockstep {
namespace {

/// The chief's reports; the other ranks report nothing.
class ChiefObserver final : public Observer {
 public:
  /// For a run that goes on after `steps` steps.
  ChiefObserver(const TrainingOptions& options, std::int64_t steps) {
    if (!options.metrics.empty()) metrics_.emplace(options.metrics, steps);
    if (options.progress == ShowProgress::yes) progress_.emplace(stderr, progress_style(stderr));
  }

  bool wants_gradient_norm() const override { return metrics_.has_value(); }
  void on_step(const StepReport& report) override {
    if (metrics_) metrics_->on_step(report);
    if (progress_) progress_->on_step(report);
  }
  void on_evaluating(const EvaluationProgress& progress) override {
    if (progress_) progress_->on_evaluating(progress);
  }
  void on_evaluation(const EvaluationReport& report) override {
    if (metrics_) metrics_->on_evaluation(report);
    if (progress_) progress_->on_evaluation(report);
  }
  void on_drift(std::int64_t step, const DriftError& found) override {
    if (metrics_) metrics_->on_drift(step, found);
  }

 private:
  std::optional<MetricsFile> metrics_;
  std::optional<Progress> progress_;
};

std::int64_t steps_of(const TrainingOptions& options, const BatchSchedule& schedule) {
  if (options.steps && options.epochs) throw ConfigError{"--epochs and --steps: expected at most one of the two"};
  return options.steps ? *options.steps : schedule.total_steps(*options.epochs);
}

/// The number of micro-batches asked for. ConfigError if a shard has fewer samples.
int micro_batches_of(const TrainingOptions& options, const BatchSchedule& schedule, int shards) {
  const std::int64_t batch = schedule.largest_batch(), capacity = shard_capacity(batch, shards);
  if (options.accumulate > capacity || options.accumulate > std::numeric_limits<int>::max())
    throw ConfigError{
        fmt::format("--accumulate {}: a batch of {} in {} shard{} has up to {} sample{} in each; expected "
                    "at most as many micro-batches",
                    options.accumulate, batch, shards, shards == 1 ? "" : "s", capacity, capacity == 1 ? "" : "s")};
  return static_cast<int>(options.accumulate);
}

FitOptions fit_options_of(const TrainingOptions& options, const TrainingSetup& setup) {
  const BatchSchedule schedule{setup.task->samples().train.count(), *options.global_batch};
  return {.global_batch = *options.global_batch,
          .steps = steps_of(options, schedule),
          .seed = options.seed,
          .shards = setup.shards,
          .accumulate = micro_batches_of(options, schedule, setup.shards),
          .threads = setup.threads,
          .prefetch = options.prefetch,
          .evaluate_every = options.evaluate_every,
          .evaluation_samples = options.evaluation_samples,
          .attest_every = options.attest_every,
          .on_divergence = options.on_divergence,
          .divergence_hint = [task = setup.task.get()] { return task->divergence_hint(); }};
}

/// Of a training without checkpoints, the manager serves to resume one.
CheckpointOptions checkpoint_options(const TrainingOptions& options, const FitOptions& fit, const TrainingTask& task,
                                     const ops::Kernels& kernels) {
  const BatchSchedule schedule{task.samples().train.count(), fit.global_batch};
  const TrainingFacts facts = training_facts(options, fit, task.data_digest());
  const bool writes = !options.checkpoints.empty();
  return {.folder = writes ? options.checkpoints : options.resume.path,
          .every = writes ? std::optional{options.checkpoint_every.value_or(schedule.steps_per_epoch())} : std::nullopt,
          .keep = options.keep_checkpoints,
          .optional = options.checkpoints_optional,
          .training = facts,
          .difference = [=, overrides = options.resume.overrides](
                            const TrainingFacts& there) { return training_difference(there, facts, overrides); },
          .kernels = kernels.fingerprint(),
          .metadata = metadata_of(task.description(), task.schema()),
          .check = [](const ResumedTraining& resumed) { (void)fit_state_of(resumed); }};
}

/// COLL. Where the training goes on; at its beginning, if there is nothing to go on from.
FitState resume(CheckpointManager& checkpoints, const TrainingOptions& options, bool is_chief) {
  std::optional<ResumedTraining> resumed;
  switch (options.resume.from) {
    case Resume::From::none:
      if (checkpoints.has_checkpoints())
        throw ConfigError{
            fmt::format("--checkpoint-dir {}: holds checkpoints of an earlier training; expected --resume "
                        "auto, which goes on from the newest, or another folder",
                        options.checkpoints.string())};
      break;
    case Resume::From::newest: resumed = checkpoints.resume_latest(); break;
    case Resume::From::path: resumed = checkpoints.resume(options.resume.path); break;
  }
  if (!resumed) return {};
  if (is_chief) log::info(fmt::format("goes on after step {}, from {}", resumed->step, resumed->checkpoint.string()));
  return fit_state_of(*resumed);
}

}  // namespace

bool has_gpu_kernels(ModelKind model) {
  switch (model) {
    case ModelKind::mlp: return true;
    case ModelKind::convnet:
    case ModelKind::gpt: return false;
  }
  return false;
}

TrainingResult run_training(Strategy& strategy, const std::string& device, const TrainingOptions& given) {
  const int rank = strategy.group().rank();
  const int ranks = strategy.num_replicas_in_sync();

  const std::shared_ptr<ExclusiveUse> use = hold_checkpoints(strategy, given);
  require_ranks_that_can_resume(strategy, given);
  const DataRequest request{.index_folder = index_folder(given.checkpoints),
                            .saved = find_saved_model(strategy, given, RestoredParts::all)};
  TrainingOptions options = complete_by(request.saved, given);
  // Whatever may fail on one rank alone runs inside a run, so that it fails on all.
  TrainingSetup setup;
  FitOptions fit_options;
  std::optional<InjectedFault> fault;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<Observer> observer = std::make_unique<Observer>();
  run_setup(strategy, [&] {
    setup = set_up(strategy, options, request);
    fault = InjectedFault::from_environment(ranks);
    fit_options = fit_options_of(options, setup);
    setup.task->require_model_fits(fit_options, room_on(strategy));
    optimizer = make_optimizer(options, fit_options.steps, setup.kernels);
    if (rank == 0) require_exportable(options);
  });
  require_same_on_all(strategy, setup);
  if (options.augmentation != Augmentation{})
    (void)strategy.same_on_all(fmt::format("augmentation {}", to_string(options.augmentation)));

  nn::Model& model = setup.task->make_model(strategy, setup.kernels);
  fit_options.frozen = frozen_by(options.freeze, model.variables());
  std::optional<CheckpointManager> checkpoints;
  if (!options.checkpoints.empty() || options.resume.from != Resume::From::none) {
    strategy.seal();
    optimizer->prepare(strategy, model.variables());
    checkpoints.emplace(strategy, checkpoint_options(options, fit_options, *setup.task, *setup.kernels));
    fit_options.start = resume(*checkpoints, options, rank == 0);
    if (fit_options.start.steps > fit_options.steps)
      throw ConfigError{
          fmt::format("the run has {} step{}, of which {} are made; expected as many or more (--steps, --epochs)",
                      fit_options.steps, fit_options.steps == 1 ? "" : "s", fit_options.start.steps)};
  }
  if (!options.initial_weights.file.empty() && fit_options.start.steps == 0) {
    const WeightsMetadata described = initialize_weights(strategy, options);
    if (rank == 0) warn_of_columns(described, options.initial_weights.file, setup.task->schema());
  }
  run_setup(strategy, [&] {
    if (rank != 0) return;
    const auto alone = strategy.group().meeting().working_alone();  // another job may be ending with the metrics
    observer = std::make_unique<ChiefObserver>(options, fit_options.start.steps);
  });
  std::optional<CheckpointObserver> with_checkpoints;
  if (!options.checkpoints.empty())
    with_checkpoints.emplace(*observer, *checkpoints,
                             CheckpointObserver::Options{fit_options.steps, options.keep_best_checkpoint});

  if (rank == 0)
    log::info(fmt::format("training {}: {} {}, {} shards, {} steps of {} samples", model.name(), ranks,
                          ranks == 1 ? "rank" : "ranks", fit_options.shards, fit_options.steps,
                          fit_options.global_batch));
  TrainingResult result{
      .ranks = ranks, .shards = fit_options.shards, .device = device, .model = std::string{model.name()}};
  result.fit = fit_with_fault(strategy, model, *optimizer, setup.task->samples(), fit_options,
                              with_checkpoints ? *with_checkpoints : *observer, fault);
  if (with_checkpoints) checkpoints->finish();
  result.weights_digest = weights_digest(model.variables());
  if (result.fit.stopped) return result;
  export_weights(strategy, options, *setup.task);
  if (options.sample > 0)
    result.sample = write_sample(strategy, *setup.task, result.fit.steps, result.fit.last_evaluation.loss);
  return result;
}

}  // namespace lockstep
