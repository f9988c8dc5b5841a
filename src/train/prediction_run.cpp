// A run that predicts samples and trains nothing.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <lockstep/base/log.hpp>
#include <lockstep/train/training.hpp>

#include "train/predictor.hpp"
#include "train/restored_weights.hpp"
#include "train/training_setup.hpp"

namespace lockstep {
namespace {

/// In turns, so that ranks which predict longer texts do not leave the others behind.
constexpr std::int64_t pieces_of_round = 64;

/// COLL. The predictions of `samples`, a row for each. Every rank computes some pieces, and adds 0 for the others.
std::vector<double> predict_round(Strategy& strategy, Predictor& predictor, const Range& samples) {
  const std::int64_t numbers = predictor.numbers(), ranks = strategy.num_replicas_in_sync();
  std::vector<double> rows(static_cast<std::size_t>(samples.size() * numbers));
  const auto alone = strategy.group().meeting().working_alone();  // a text may take longer than the stall timeout
  strategy.run([&](ReplicaContext& context) {
    std::int64_t piece = 0;
    for (std::int64_t first = samples.first; first < samples.last; first += predictor.at_once(), ++piece) {
      if (piece % ranks != context.replica_id_in_sync_group()) continue;
      const Range own{first, std::min(first + predictor.at_once(), samples.last)};
      predictor.predict(own, std::span{rows}.subspan(static_cast<std::size_t>((first - samples.first) * numbers),
                                                     static_cast<std::size_t>(own.size() * numbers)));
    }
    const Tensor sum = context.all_reduce(ReduceOp::sum, Tensor::from(rows, {std::ssize(rows)}));
    rows = sum.to_vector<double>();
  });
  return rows;
}

}  // namespace

std::vector<Prediction> run_prediction(Strategy& strategy, const TrainingOptions& given) {
  const DataRequest request{.saved = find_saved_model(strategy, given, RestoredParts::weights)};
  TrainingOptions options = complete_by(request.saved, given);
  options.optimizer = OptimizerKind::sgd;  // which needs the least memory
  options.accumulate = 1;
  const bool is_chief = strategy.group().rank() == 0;

  TrainingSetup setup;
  run_setup(strategy, [&] {
    setup = set_up(strategy, options, request);
    setup.task->require_model_fits({.global_batch = 1, .shards = setup.shards}, room_on(strategy));
  });
  require_same_on_all(strategy, setup);
  const nn::Model& model = setup.task->make_model(strategy, setup.kernels);
  const RestoredWeights weights = restore_weights(strategy, options);
  const std::unique_ptr<Predictor> predictor = setup.task->make_predictor(strategy.stream());
  if (is_chief)
    log::info(fmt::format("predicting {} samples of {} with {} from {}", predictor->count(), options.predict.string(),
                          model.name(), weights.from.string()));

  const MeetingPoint::NamedSteps named = strategy.group().meeting().keep_named_steps();
  strategy.set_step(0, RunKind::prediction);
  std::vector<Prediction> predictions;
  const std::int64_t round = pieces_of_round * predictor->at_once();
  for (std::int64_t first = 0; first < predictor->count(); first += round) {
    const Range samples{first, std::min(first + round, predictor->count())};
    const std::vector<double> rows = predict_round(strategy, *predictor, samples);
    const auto numbers = static_cast<std::size_t>(predictor->numbers());
    for (std::int64_t i = 0; is_chief && i < samples.size(); ++i)
      predictions.push_back(
          predictor->read(first + i, std::span{rows}.subspan(static_cast<std::size_t>(i) * numbers, numbers)));
  }
  return predictions;
}

}  // namespace lockstep
