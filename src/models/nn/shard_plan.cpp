#include "models/nn/shard_plan.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"

namespace lockstep::nn {
namespace {

/// "layer 1's input gradients" for each thing that a plan rules out.
std::vector<std::string> limits_of(std::span<const LayerPlan> plans) {
  std::vector<std::string> limits;
  for (std::size_t layer = 0; layer < plans.size(); ++layer) {
    const LayerPlan& plan = plans[layer];
    if (!plan.forward_at_once) limits.push_back(fmt::format("layer {}'s outputs", layer));
    if (!plan.input_gradients_at_once) limits.push_back(fmt::format("layer {}'s input gradients", layer));
    if (!plan.weight_gradients_at_once) limits.push_back(fmt::format("layer {}'s weight gradients", layer));
  }
  return limits;
}

}  // namespace

LayerPlans::LayerPlans(std::shared_ptr<const ops::Kernels> kernels, std::vector<ops::DenseForm> layers, Stream& stream)
    : kernels_{std::move(kernels)}, layers_{std::move(layers)}, stream_{stream} {}

std::span<const LayerPlan> LayerPlans::of(ops::RowBlocks shards) {
  auto found = made_.find(shards);
  if (found == made_.end()) found = made_.emplace(shards, made_for(shards)).first;
  return found->second;
}

std::vector<LayerPlan> LayerPlans::made_for(ops::RowBlocks shards) const {
  std::vector<LayerPlan> plans;
  for (const ops::DenseForm& layer : layers_) {
    if (layer.dtype == DType::bf16 && shards.blocks > 1) {
      // Sums in another order mostly round to the same bf16, so a trial would not find out.
      plans.push_back({.forward_at_once = false, .input_gradients_at_once = false, .weight_gradients_at_once = false});
      continue;
    }
    LayerPlan plan;
    ops::DenseTrial trial{*kernels_, layer, shards, stream_};
    plan.forward_at_once = trial.forward_rows_keep_their_bits();
    if (!plans.empty()) plan.input_gradients_at_once = trial.input_gradient_rows_keep_their_bits();
    plan.weight_gradients_at_once = trial.weight_gradients_add_up();
    plans.push_back(plan);
  }
  const std::vector<std::string> limits = limits_of(plans);
  if (!limits.empty() && shards.blocks > 1 && log::is_chief())
    log::debug(
        fmt::format("{} shards of {} rows: {} has other bits for all of them at once, or may have, so these are "
                    "computed shard by shard: {}",
                    shards.blocks, shards.rows, kernels_->name(), fmt::join(limits, ", ")));
  return plans;
}

}  // namespace lockstep::nn
