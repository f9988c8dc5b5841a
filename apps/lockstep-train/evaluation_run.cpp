// A run that evaluates a model and trains nothing.
#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/checkpoint/weights.hpp>

#include "apps/lockstep-train/data/index_file.hpp"
#include "apps/lockstep-train/reports/progress.hpp"
#include "apps/lockstep-train/saved/exported_weights.hpp"
#include "apps/lockstep-train/saved/restored_weights.hpp"
#include "apps/lockstep-train/training.hpp"
#include "apps/lockstep-train/training_setup.hpp"
#include "fit/evaluation_pass.hpp"

namespace lockstep {
namespace {

/// The chief's progress, if it is shown.
class EvaluationProgressLine final : public Observer {
 public:
  explicit EvaluationProgressLine(ShowProgress show) {
    if (show == ShowProgress::yes) progress_.emplace(stderr, progress_style(stderr));
  }

  void on_evaluating(const EvaluationProgress& progress) override {
    if (progress_) progress_->on_evaluating(progress);
  }
  void on_evaluation(const EvaluationReport& report) override {
    if (progress_) progress_->on_evaluation(report);
  }

 private:
  std::optional<Progress> progress_;
};

/// Of what a pass needs: no state of an optimizer, and the batches of an evaluation.
FitOptions fit_options_of(const TrainingSetup& setup) {
  const SampleSource& test = setup.task->samples().test;
  return {.global_batch = std::max<std::int64_t>(1024 / test.labels_per_sample(), setup.shards),
          .shards = setup.shards};
}

}  // namespace

EvaluationResult run_evaluation(Strategy& strategy, const std::string& device, const TrainingOptions& given) {
  // Not in the folder of checkpoints, where a training may be at work.
  const DataRequest request{.parts = LabelledOptions::Parts::test,
                            .index_folder = index_folder({}),
                            .saved = find_saved_model(strategy, given, RestoredParts::weights)};
  TrainingOptions options = complete_by(request.saved, given);
  options.optimizer = OptimizerKind::sgd;  // which needs the least memory
  options.accumulate = 1;
  const bool is_chief = strategy.group().rank() == 0;
  const int ranks = strategy.num_replicas_in_sync();

  TrainingSetup setup;
  run_setup(strategy, [&] {
    setup = set_up(strategy, options, request);
    setup.task->require_model_fits(fit_options_of(setup), room_on(strategy));
    if (setup.task->samples().test.count() < 1)
      throw ConfigError{fmt::format("{}: the test set has 0 samples; expected 1 or more", options.data.string())};
    if (is_chief) require_exportable(options);
  });
  require_same_on_all(strategy, setup);
  nn::Model& model = setup.task->make_model(strategy, setup.kernels);
  const RestoredWeights weights = restore_weights(strategy, options);

  const std::unique_ptr<ShardThreads> threads =
      ShardThreads::make(strategy, model, setup.threads, setup.shards / ranks);
  EvaluationPass pass{strategy,     model,        setup.task->samples().test, options.evaluation_samples,
                      setup.shards, threads.get()};
  if (is_chief)
    log::info(fmt::format("evaluating {} from {}: {} {}, {} shards, {} samples", model.name(), weights.from.string(),
                          ranks, ranks == 1 ? "rank" : "ranks", setup.shards, pass.samples()));
  EvaluationResult result{.ranks = ranks,
                          .shards = setup.shards,
                          .device = device,
                          .model = std::string{model.name()},
                          .weights = weights.from,
                          .steps = weights.steps};
  EvaluationProgressLine progress{is_chief ? options.progress : ShowProgress::no};
  {
    const MeetingPoint::NamedSteps named = strategy.group().meeting().keep_named_steps();
    if (weights.steps > 0) strategy.set_step(weights.steps, RunKind::evaluation);
    result.evaluation = {.step = weights.steps};
    pass.run(result.evaluation, progress, Here::current());
  }
  progress.on_evaluation(result.evaluation);
  result.weights_digest = weights_digest(model.variables());
  export_weights(strategy, options, *setup.task);
  if (options.sample > 0) result.sample = write_sample(strategy, *setup.task, result.steps, result.evaluation.loss);
  return result;
}

}  // namespace lockstep
