#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/tf/estimator/replicate_model_fn.hpp>

#include "core/cluster/counted.hpp"
#include "core/control/tag.hpp"
#include "core/values/walks.hpp"
#include "sync/strategy/inside.hpp"
#include "tf/estimator/batch_split.hpp"
#include "tf/estimator/tower_call.hpp"

namespace lockstep::detail {
namespace {

std::string_view name_of(ReplicateOptions::Reduction reduction) {
  switch (reduction) {
    case ReplicateOptions::Reduction::none:
      throw InvalidArgument{"Tower losses need to be reduced in some way, yet none reduction is specified."};
    case ReplicateOptions::Reduction::sum: return "sum";
    case ReplicateOptions::Reduction::mean: return "mean";
    case ReplicateOptions::Reduction::sum_over_batch_size: return "sum_over_batch_size";
    case ReplicateOptions::Reduction::sum_by_nonzero_weights: return "sum_by_nonzero_weights";
  }
  throw InvalidArgument{
      fmt::format("loss reduction {} is none of sum, mean, sum_over_batch_size, "
                  "sum_by_nonzero_weights",
                  static_cast<int>(reduction))};
}

std::string_view name_of(ReplicateOptions::Placement placement) {
  switch (placement) {
    case ReplicateOptions::Placement::mirrored: return "mirrored";
    case ReplicateOptions::Placement::chief: return "chief";
    case ReplicateOptions::Placement::round_robin: return "round_robin";
  }
  throw InvalidArgument{
      fmt::format("variable placement {} is none of mirrored, chief, round_robin", static_cast<int>(placement))};
}

std::string text_of(const ReplicateOptions& options) {
  return fmt::format("losses reduced as {}, variables {}", name_of(options.reduction), name_of(options.placement));
}

}  // namespace

ReplicatedTowers::ReplicatedTowers(Strategy& strategy, const ReplicateOptions& options)
    : state_{std::make_unique<State>(State{detail::StrategyAddress{strategy}, options})} {
  const std::string text = text_of(options);
  if (strategy.rank() == 0)
    log::info(fmt::format("replicating the model_fn across {}: {}", counted(strategy.num_replicas_in_sync(), "replica"),
                          text));
}

ReplicatedTowers::~ReplicatedTowers() = default;

EstimatorSpec ReplicatedTowers::call(EstimatorSpec::Mode mode, AnyValue features, const std::optional<AnyValue>& labels,
                                     const std::function<EstimatorSpec(Tower&)>& model_fn, const Here& here) {
  const RowTensors of_features = tensors_in(features), of_labels = labels ? tensors_in(*labels) : RowTensors{};
  EstimatorSpec spec;
  state_->address.strategy().run(
      [&](ReplicaContext& context) {
        const std::string text = fmt::format("{} of {}{} and {}{}, {}", name_of(mode), describe(of_features),
                                             structure_of(features), labels ? describe(of_labels) : "no labels",
                                             labels ? structure_of(*labels) : "", text_of(state_->options));
        split_batch(of_features, of_labels, context.replica_id_in_sync_group(), context.num_replicas_in_sync(),
                    context.strategy().stream());
        inside(context.strategy()).agree(TagKind::merge, here, text);
        TowerCall call{*state_, context, mode, here};
        spec = call.finish(model_fn);
      },
      {}, here);
  return spec;
}

void ReplicatedTowers::reset_metrics() {
  for (const auto& [name, accumulator] : state_->accumulators)
    accumulator.assign(Tensor::zeros(accumulator.dtype(), accumulator.shape()));
}

std::vector<MirroredVariable> ReplicatedTowers::variables() const {
  std::vector<MirroredVariable> variables;
  for (const auto& [name, variable] : state_->variables) variables.push_back(variable);
  return variables;
}

std::vector<MirroredVariable> ReplicatedTowers::trainable_variables() const {
  std::vector<MirroredVariable> trainable = variables();
  std::erase_if(trainable, [](const MirroredVariable& variable) { return !variable.trainable(); });
  return trainable;
}

}  // namespace lockstep::detail
