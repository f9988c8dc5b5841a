// What trains.
#include <algorithm>
#include <limits>
#include <memory>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "apps/lockstep-train/data/index_file.hpp"
#include "apps/lockstep-train/reports/event_file.hpp"
#include "apps/lockstep-train/reports/progress.hpp"
#include "apps/lockstep-train/reports/run_facts.hpp"
#include "apps/lockstep-train/saved/checkpoint_observer.hpp"
#include "apps/lockstep-train/saved/exported_weights.hpp"
#include "apps/lockstep-train/saved/locked_checkpoints.hpp"
#include "apps/lockstep-train/saved/training_difference.hpp"
#include "apps/lockstep-train/saved/training_facts.hpp"
#include "apps/lockstep-train/tasks/optimizer_choice.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"
#include "core/control/meeting_point.hpp"
#include "core/order/shard_sizes.hpp"
#include "core/order/shares.hpp"
#include "models/fit/frozen_variables.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/record/run_folder.hpp"
#include "models/record/run_trace.hpp"
#include "models/record/timeline.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// Of a record in this folder, which messages name as the options do.
RunRecord::Options record_in(const std::filesystem::path& folder) {
  return {.folder = folder, .folder_name = "--run-dir", .metrics_name = "--metrics", .resume_name = "--resume auto"};
}

/// Event files and progress, as the options ask.
class ChiefReports final : public Observer {
 public:
  /// For a run that goes on after `steps` steps, in a folder that this process has for its job alone.
  ChiefReports(const TrainingOptions& options, std::int64_t steps, std::shared_ptr<ExclusiveUse> use)
      : progress_{make_progress(options.progress)} {
    if (options.tensorboard) events_.emplace(RunLayout{options.run_folder}.events(), std::move(use), steps);
  }

  /// CheckpointError if a file that they wrote is no longer where it was.
  void require_in_place() const {
    if (events_) events_->require_in_place();
  }

  bool wants_gradient_norm() const override { return events_.has_value(); }
  void on_step(const Step& report) override {
    if (events_) events_->on_step(report);
    progress_->on_step(report);
  }
  void on_evaluating(const Evaluation::Progress& progress) override { progress_->on_evaluating(progress); }
  void on_evaluation(const Evaluation& report) override {
    if (events_) events_->on_evaluation(report);
    progress_->on_evaluation(report);
  }
  void on_parts(const Observer::Parts& report) override {
    if (events_) events_->on_parts(report);
    progress_->on_parts(report);
  }

 private:
  std::optional<EventFile> events_;
  std::unique_ptr<Observer> progress_;
};

std::int64_t steps_of(const TrainingOptions& options, const BatchSchedule& schedule) {
  if (options.steps && options.epochs) throw ConfigError{"--epochs and --steps: expected at most one of the two"};
  return options.steps ? *options.steps : schedule.total_steps(*options.epochs);
}

/// Empty if all ranks have as many; otherwise " (2 to 3 on a rank)": the others wait for those that have most. Also
/// what it costs if a rank brings sums of several subtrees, compared with one.
std::string shares_text(const Shares& shares, const Reductions& reductions, std::span<const Variable> variables) {
  std::int64_t least = shares.largest();
  for (int rank = 0; rank < shares.ranks(); ++rank) least = std::min(least, shares.of(rank).size());
  if (least == shares.largest()) return "";
  const std::string sizes = fmt::format(" ({} to {} on a rank", least, shares.largest());
  if (!shares.has_several()) return sizes + ")";
  double bytes = 0;
  for (const Variable& variable : variables)
    bytes += static_cast<double>(element_count(variable.shape())) * static_cast<double>(size_of(variable.dtype()));
  const int most = shares.most_of_rank();
  return fmt::format(
      "{}, in up to {} subtrees: {:.1f} times the bytes where gradients are sent, {:.1f} MB more memory)", sizes, most,
      (reductions.subtrees_sent(shares) + 1) / 2., (most - 1) * bytes / 1e6);
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

std::optional<std::int64_t> ledger_interval(const TrainingOptions& options) {
  constexpr std::int64_t usual = 100;
  const std::int64_t every = options.run_folder.empty() ? 0 : options.ledger_every.value_or(usual);
  return every > 0 ? std::optional{every} : std::nullopt;
}

/// CheckpointError if the run of the folder has written checkpoints, where none is left: from step 0, its records would
/// be replaced. A checkpoint is in the timeline when its writing begins. It was complete if, in the same start, the
/// next one begins or the training comes to its end, or if the next start goes on from it.
void require_no_lost_checkpoints(const TrainingOptions& options) {
  if (options.run_folder.empty() || options.checkpoints_optional) return;
  std::int64_t newest = 0, begun = 0;
  for (const OrderedJson& event : read_timeline(RunLayout{options.run_folder}.timeline())) {
    const std::string kind = event.value("kind", "");
    const auto step = event.value("step", std::int64_t{0});
    if (kind == "checkpoint" || kind == "end" || kind == "stop" || (kind == "start" && step == begun))
      newest = std::max(newest, begun);
    if (kind == "checkpoint" || kind == "start") begun = kind == "checkpoint" ? step : 0;
  }
  if (newest > 0)
    throw CheckpointError{fmt::format(
        "--run-dir {}: its run has written checkpoints up to step {}, and {} holds none: another start from "
        "step 0 would replace what it has recorded; expected its checkpoints there, or another --run-dir",
        options.run_folder.string(), newest, options.checkpoints.string())};
}

}  // namespace

void Trainer::lock_folders() {
  const bool writes = !options_.checkpoints.empty(), resumes = options_.resume.from != Resume::From::none;
  if (!writes && !resumes && options_.run_folder.empty()) return;
  set_up([&] {
    if (!is_chief()) return;
    const auto alone = inside(strategy_).group().meeting().working_alone();  // another job may be ending
    const RunRecord::Options record = record_in(options_.run_folder);
    if (!options_.run_folder.empty())
      run_folder_ = lock_run_folder(record, resumes ? RunStart::may_resume : RunStart::anew);
    if (options_.trace) require_own_trace(RunLayout{options_.run_folder}.trace(), record.folder_name);
    if (writes) use_ = lock_folder_of_checkpoints(options_);
    if (resumes) require_ranks_that_can_resume(options_, ranks());
  });
}

FitOptions Trainer::fit_options() const {
  const BatchSchedule schedule{task_->samples().train.count(), *options_.global_batch};
  return {.global_batch = *options_.global_batch,
          .steps = steps_of(options_, schedule),
          .seed = options_.seed,
          .shards = shards_,
          .accumulate = micro_batches_of(options_, schedule, shards_),
          .threads = threads_,
          .prefetch = options_.prefetch,
          .evaluate_every = options_.evaluate_every,
          .evaluation_samples = options_.evaluation_samples,
          .attest_every = options_.attest_every,
          .attest_first = options_.attest_first,
          .audit_every = options_.audit_every,
          .record_every = ledger_interval(options_),
          .on_divergence = options_.on_divergence,
          .divergence_hint = [task = task_.get()] { return task->divergence_hint(); },
          .start = Observer::State{}};
}

std::string Trainer::compression() const {
  const std::optional<DType> type = inside(strategy_).reductions().gradient_compression();
  return type ? compression_text(*type, inside(strategy_).group().node_of_rank(), shards_) : std::string{};
}

/// Of a training without checkpoints, the manager serves to resume one.
CheckpointManager::Options Trainer::checkpoint_options() const {
  const BatchSchedule schedule{task_->samples().train.count(), fit_.global_batch};
  const TrainingFacts facts = training_facts(options_, fit_, task_->data_digest());
  const bool writes = !options_.checkpoints.empty();
  return {
      .folder = writes ? options_.checkpoints : options_.resume.path,
      .every = writes ? std::optional{options_.checkpoint_every.value_or(schedule.steps_per_epoch())} : std::nullopt,
      .keep = options_.keep_checkpoints,
      .optional = options_.checkpoints_optional,
      .training = facts,
      .difference = [=, overrides = options_.resume.overrides](
                        const TrainingFacts& there) { return training_difference(there, facts, overrides); },
      .kernels = kernels_->fingerprint(),
      .compression = compression(),
      .metadata = metadata_of(task_->description(), task_->schema()),
      .check = [on_divergence = options_.on_divergence](
                   const CheckpointManager::Resumed& resumed) { (void)fit_state_of(resumed, on_divergence); }};
}

void Trainer::resume() {
  const Resume& from = options_.resume;
  if (options_.checkpoints.empty() && from.from == Resume::From::none) return;
  strategy_.seal();
  optimizer_->prepare(strategy_, model_->variables());
  checkpoints_.emplace(strategy_, checkpoint_options());
  std::optional<CheckpointManager::Resumed> resumed;
  switch (from.from) {
    case Resume::From::none:
      if (checkpoints_->has_checkpoints())
        throw ConfigError{
            fmt::format("--checkpoint-dir {}: holds checkpoints of an earlier training; expected --resume "
                        "auto, which goes on from the newest, or another folder",
                        options_.checkpoints.string())};
      break;
    case Resume::From::newest:
      resumed = checkpoints_->resume_latest();
      if (!resumed)
        set_up([&] {
          if (is_chief()) require_no_lost_checkpoints(options_);
        });
      break;
    case Resume::From::path: resumed = checkpoints_->resume(from.path); break;
  }
  if (!resumed) return;
  if (is_chief()) log::info(fmt::format("goes on after step {}, from {}", resumed->step, resumed->checkpoint.string()));
  fit_.start = fit_state_of(*resumed, fit_.on_divergence);
  if (fit_.start->steps > fit_.steps)
    throw ConfigError{
        fmt::format("the run has {} step{}, of which {} are made; expected as many or more (--steps, --epochs)",
                    fit_.steps, fit_.steps == 1 ? "" : "s", fit_.start->steps)};
}

RunRecord::Options Trainer::record_options(Observer& reports) const {
  RunRecord::Options record = record_in(options_.run_folder);
  record.metrics = options_.metrics;
  record.trace = options_.trace;
  record.initial_weights = !options_.initial_weights.file.empty() && fit_.start->steps == 0;
  record.next = &reports;
  if (options_.resume.from != Resume::From::none) record.resume_after = fit_.start->steps;
  if (record.folder.empty()) return record;
  if (record.metrics == RunLayout{record.folder}.metrics()) record.metrics.clear();
  const FitOptions::Samples samples = task_->samples();
  const RunFacts facts{.options = options_,
                       .fit = fit_,
                       .kernels = kernels_->fingerprint(),
                       .compression = compression(),
                       .data_digest = task_->data_digest(),
                       .schema = task_->schema(),
                       .samples = samples.train.count(),
                       .test_samples = samples.test.count()};
  record.about = to_json(facts);
  if (fit_.record_every) record.ledger = ledger_json(facts);
  return record;
}

TrainingResult Trainer::train() && {
  lock_folders();
  request_.index_folder = index_folder(options_.checkpoints);
  complete_options(RestoredParts::everything);
  std::optional<InjectedFault> fault;
  set_up([&] {
    load();
    fault = InjectedFault::from_environment(ranks());
    fit_ = fit_options();
    task_->require_model_fits(fit_, room_on(strategy_));
    optimizer_ = make_optimizer(options_, fit_.steps, *kernels_);
    if (is_chief()) require_exportable(options_);
  });
  make_model();
  if (options_.augmentation != AugmentedSamples::Augmentation{})
    (void)strategy_.same_on_all(fmt::format("augmentation {}", describe(options_.augmentation)));
  fit_.frozen = frozen_by(options_.freeze, model_->variables());
  resume();
  if (!options_.initial_weights.file.empty() && fit_.start->steps == 0) {
    const WeightsMetadata described = take_initial_weights();
    if (is_chief()) warn_of_columns(described, options_.initial_weights.file, task_->schema());
  }
  Observer none;  // the reports of other ranks
  std::optional<ChiefReports> reports;
  set_up([&] {
    if (is_chief()) reports.emplace(options_, fit_.start->steps, run_folder_);
  });
  // Before lines of metrics go that are about the steps after it.
  if (!options_.checkpoints.empty()) checkpoints_->begin();
  RunRecord record{strategy_, record_options(reports ? *reports : none)};
  std::optional<CheckpointObserver> saves;
  if (!options_.checkpoints.empty())
    saves.emplace(record, *checkpoints_,
                  CheckpointObserver::Options{options_.checkpoints, fit_.steps, options_.keep_best_checkpoint});

  if (is_chief())
    log::info(fmt::format("training {}: {} {}, {} shards{}, {} steps of {} samples", model_->name(), ranks(),
                          ranks() == 1 ? "rank" : "ranks", fit_.shards,
                          shares_text(shares(), inside(strategy_).reductions(), model_->variables()), fit_.steps,
                          fit_.global_batch));
  TrainingResult result{
      .ranks = ranks(), .shards = fit_.shards, .device = device_, .model = std::string{model_->name()}};
  result.fit = fit_with_fault(strategy_, *model_, *optimizer_, task_->samples(), fit_,
                              saves ? *saves : static_cast<Observer&>(record), fault);
  if (saves) checkpoints_->finish();
  result.weights_digest = weights_digest(model_->variables());
  if (result.fit.stopped) {
    record.stop(result.fit.steps);  // no observer hears of it before the first step
    return result;
  }
  export_weights();
  if (options_.sample > 0)
    result.sample = write_sample(strategy_, *task_, result.fit.steps, result.fit.last_evaluation.loss);
  record.finish(to_json(result));
  if (reports) reports->require_in_place();
  return result;
}

}  // namespace lockstep
