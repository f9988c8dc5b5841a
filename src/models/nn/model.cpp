#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/nn/model.hpp>

#include "core/control/busy_clock.hpp"
#include "models/nn/shard_checks.hpp"
#include "models/nn/shard_losses.hpp"
#include "models/nn/shard_sums.hpp"

namespace lockstep::nn {

Model::Model() = default;
Model::~Model() = default;

ops::Kernels::BatchLoss Model::train_shards(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                            const GradientBuffer& sum) {
  return start_one_by_one(shards, places, sum).wait();
}

ops::Kernels::BatchLoss Model::train_watched(const SampleBatch::Group& shards,
                                             std::span<const Model::ShardPlace> places, const GradientBuffer& sum,
                                             ShardWatch& watch) {
  return pass_one_by_one(shards, places, sum, &watch).read_shown_to(watch, sum.stream());
}

ops::Answer<ops::Kernels::BatchLoss> Model::start_shards(const SampleBatch::Group& shards,
                                                         std::span<const Model::ShardPlace> places,
                                                         const GradientBuffer& sum) {
  return train_shards(shards, places, sum);
}

ops::Answer<ops::Kernels::BatchLoss> Model::start_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                                        const GradientBuffer& gradients) {
  return train_shard(shard, place, gradients);
}

ops::Answer<ops::Kernels::BatchLoss> Model::start_one_by_one(const SampleBatch::Group& shards,
                                                             std::span<const Model::ShardPlace> places,
                                                             const GradientBuffer& sum) {
  return {sum.stream(), [losses = pass_one_by_one(shards, places, sum, nullptr)] { return losses.read(); }};
}

ShardLosses Model::pass_one_by_one(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                   const GradientBuffer& sum, ShardWatch* watch) {
  require_places(shards, places);
  if (!shard_sums_) shard_sums_ = std::make_unique<ShardSums>();
  shard_sums_->begin(sum, std::ssize(places), watch);
  ShardLosses losses;
  for (std::int64_t number = 0; number < std::ssize(places); ++number) {
    const auto shard = static_cast<std::size_t>(number);
    const SampleBatch& batch = shards.batches[shard];
    losses.push(number, start_shard(batch, places[shard], shard_sums_->of_shard(number)), batch.counted_labels());
    shard_sums_->push();
  }
  shard_sums_->finish();
  return losses;
}

void Model::begin(Pass pass) const {
  BusyClock::enter(pass == Pass::forward ? BusyClock::Part::forward : BusyClock::Part::backward);
  if (on_pass_) on_pass_(pass);
}

std::vector<double> Model::logits(const SampleBatch& /*batch*/) {
  throw InvalidArgument{fmt::format("a model '{}' has no logits", name())};
}

}  // namespace lockstep::nn
