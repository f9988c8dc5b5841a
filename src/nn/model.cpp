#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/model.hpp>

#include "control/busy_clock.hpp"
#include "nn/shard_checks.hpp"
#include "nn/shard_losses.hpp"
#include "nn/shard_sums.hpp"

namespace lockstep::nn {

Model::Model() = default;
Model::~Model() = default;

ops::Kernels::BatchLoss Model::train_shards(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                            const GradientBuffer& sum) {
  return train_one_by_one(shards, places, sum, nullptr).read();
}

ops::Kernels::BatchLoss Model::train_watched(const SampleBatch::Group& shards,
                                             std::span<const Model::ShardPlace> places, const GradientBuffer& sum,
                                             ShardWatch& watch) {
  return train_one_by_one(shards, places, sum, &watch).read_shown_to(watch, sum.stream());
}

ShardLosses Model::train_one_by_one(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                    const GradientBuffer& sum, ShardWatch* watch) {
  require_places(shards, places);
  if (!shard_sums_) shard_sums_ = std::make_unique<ShardSums>();
  shard_sums_->begin(sum, std::ssize(places), watch);
  ShardLosses losses;
  for (std::size_t shard = 0; shard < places.size(); ++shard) {
    const GradientBuffer gradients = shard_sums_->of_shard(static_cast<std::int64_t>(shard));
    losses.push(train_shard(shards.batches[shard], places[shard], gradients), shards.batches[shard]);
    losses.end_shard();
    shard_sums_->push();
  }
  shard_sums_->finish();
  return losses;
}

ops::Answer<ops::Kernels::BatchLoss> Model::start_shards(const SampleBatch::Group& shards,
                                                         std::span<const Model::ShardPlace> places,
                                                         const GradientBuffer& sum) {
  return train_shards(shards, places, sum);
}

void Model::begin(Pass pass) const {
  BusyClock::enter(pass == Pass::forward ? BusyClock::Part::forward : BusyClock::Part::backward);
  if (on_pass_) on_pass_(pass);
}

std::vector<double> Model::logits(const SampleBatch& /*batch*/) {
  throw InvalidArgument{fmt::format("a model '{}' has no logits", name())};
}

}  // namespace lockstep::nn
