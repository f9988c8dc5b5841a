#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/model.hpp>

#include "nn/shard_checks.hpp"
#include "nn/shard_sums.hpp"

namespace lockstep::nn {

Model::Model() = default;
Model::~Model() = default;

ops::Kernels::BatchLoss Model::train_shards(const SampleBatch::Group& shards, std::span<const Model::ShardPlace> places,
                                            const GradientBuffer& sum) {
  require_places(shards, places);
  if (!shard_sums_) shard_sums_ = std::make_unique<ShardSums>();
  shard_sums_->begin(sum, std::ssize(places));
  ops::Kernels::BatchLoss total;
  for (std::size_t shard = 0; shard < places.size(); ++shard) {
    const ops::Kernels::BatchLoss own =
        train_shard(shards.batches[shard], places[shard], shard_sums_->of_shard(static_cast<std::int64_t>(shard)));
    shard_sums_->push(weighed(own, shards.batches[shard]));
    total.correct += own.correct;
  }
  const ops::Kernels::BatchLoss::Weighed sums = shard_sums_->finish();
  total.loss_sum = sums.loss;
  total.weight = sums.weight;
  return total;
}

std::vector<double> Model::logits(const SampleBatch& /*batch*/) {
  throw InvalidArgument{fmt::format("a model '{}' has no logits", name())};
}

}  // namespace lockstep::nn
