// What evaluates a model and trains nothing.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "apps/lockstep-train/data/index_file.hpp"
#include "apps/lockstep-train/reports/progress.hpp"
#include "apps/lockstep-train/saved/exported_weights.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "core/control/meeting_point.hpp"
#include "models/fit/evaluation_pass.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// Of what a pass needs: no state of an optimizer, and the batches of an evaluation.
FitOptions sizes_of_pass(const SampleSource& test, int shards) {
  return {
      .global_batch = std::max<std::int64_t>(1024 / test.labels_per_sample(), shards), .steps = 0, .shards = shards};
}

}  // namespace

EvaluationResult Trainer::evaluate() && {
  request_.test_only = true;
  request_.index_folder = index_folder({});  // not that of checkpoints, where a training may be at work
  const Restored restored = restore_model([&] {
    const SampleSource& test = task_->samples().test;
    task_->require_model_fits(sizes_of_pass(test, shards_), room_on(strategy_));
    if (test.count() < 1)
      throw ConfigError{fmt::format("{}: the test set has 0 samples; expected 1 or more", options_.data.string())};
    if (is_chief()) require_exportable(options_);
  });

  const Shares shares = this->shares();
  const std::unique_ptr<ShardThreads> threads =
      ShardThreads::make(strategy_, *model_, threads_, shares.of(strategy_.rank()).size());
  EvaluationPass pass{strategy_, *model_, task_->samples().test, options_.evaluation_samples, shares, threads.get()};
  if (is_chief())
    log::info(fmt::format("evaluating {} from {}: {} {}, {} shards, {} samples", model_->name(), restored.from.string(),
                          ranks(), ranks() == 1 ? "rank" : "ranks", shards_, pass.samples()));
  EvaluationResult result{.ranks = ranks(),
                          .shards = shards_,
                          .device = device_,
                          .model = std::string{model_->name()},
                          .weights = restored.from,
                          .steps = restored.steps,
                          .evaluation = {.step = restored.steps}};
  const std::unique_ptr<Observer> progress = make_progress(is_chief() ? options_.progress : ShowProgress::no);
  {
    const MeetingPoint::NamedSteps named = inside(strategy_).group().meeting().keep_named_steps();
    if (restored.steps > 0) strategy_.set_step(restored.steps, Strategy::RunKind::evaluation);
    pass.run(result.evaluation, *progress, Here::current());
  }
  progress->on_evaluation(result.evaluation);
  result.weights_digest = weights_digest(model_->variables());
  export_weights();
  if (options_.sample > 0) result.sample = write_sample(strategy_, *task_, result.steps, result.evaluation.loss);
  return result;
}

}  // namespace lockstep
