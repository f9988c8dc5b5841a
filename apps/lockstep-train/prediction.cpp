// What predicts samples and trains nothing.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "apps/lockstep-train/tasks/predictor.hpp"
#include "apps/lockstep-train/trainer.hpp"
#include "core/control/meeting_point.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// In turns, so that ranks which predict longer texts do not leave the others behind.
constexpr std::int64_t pieces_of_round = 64;

/// COLL. The predictions of `samples`, a row for each. Every rank computes some pieces, and adds 0 for the others.
std::vector<double> predict_round(Strategy& strategy, Predictor& predictor, const Range& samples,
                                  const SampleSource& source) {
  const std::int64_t numbers = predictor.numbers(), ranks = strategy.num_replicas_in_sync();
  std::vector<double> rows(static_cast<std::size_t>(samples.size() * numbers));
  const auto alone =
      inside(strategy).group().meeting().working_alone();  // a text may take longer than the stall timeout
  strategy.run([&](ReplicaContext& context) {
    std::int64_t piece = 0;
    for (std::int64_t first = samples.first; first < samples.last; first += predictor.at_once(), ++piece) {
      if (piece % ranks != context.replica_id_in_sync_group()) continue;
      const Range own{first, std::min(first + predictor.at_once(), samples.last)};
      predictor.predict(own, std::span{rows}.subspan(static_cast<std::size_t>((first - samples.first) * numbers),
                                                     static_cast<std::size_t>(own.size() * numbers)));
    }
    if (samples.last == predictor.count()) source.require_unchanged();
    const Tensor sum = context.all_reduce(ReduceOp::sum, Tensor::from(rows, {std::ssize(rows)}));
    rows = sum.to_vector<double>();
  });
  return rows;
}

}  // namespace

std::vector<Prediction> Trainer::predict() && {
  const Restored restored = restore_model(
      [&] { task_->require_model_fits({.global_batch = 1, .steps = 0, .shards = shards_}, room_on(strategy_)); });
  const std::unique_ptr<Predictor> predictor = task_->make_predictor(strategy_.stream());
  if (is_chief())
    log::info(fmt::format("predicting {} samples of {} with {} from {}", predictor->count(), options_.predict.string(),
                          model_->name(), restored.from.string()));

  const MeetingPoint::NamedSteps named = inside(strategy_).group().meeting().keep_named_steps();
  strategy_.set_step(0, Strategy::RunKind::prediction);
  std::vector<Prediction> predictions;
  const std::int64_t round = pieces_of_round * predictor->at_once();
  for (std::int64_t first = 0; first < predictor->count(); first += round) {
    const Range samples{first, std::min(first + round, predictor->count())};
    const std::vector<double> rows = predict_round(strategy_, *predictor, samples, task_->samples().train);
    const auto numbers = static_cast<std::size_t>(predictor->numbers());
    for (std::int64_t i = 0; is_chief() && i < samples.size(); ++i)
      predictions.push_back(
          predictor->read(first + i, std::span{rows}.subspan(static_cast<std::size_t>(i) * numbers, numbers)));
  }
  return predictions;
}

}  // namespace lockstep
