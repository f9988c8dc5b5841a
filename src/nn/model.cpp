#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/nn/model.hpp>

#include "shard_sums.hpp"

namespace lockstep::nn {

Model::Model() = default;
Model::~Model() = default;

ops::CrossEntropy Model::train_shards(const BatchGroup& shards, std::span<const ShardPlace> places,
                                      const GradientBuffer& sum) {
  if (places.empty() || places.size() != shards.batches.size())
    throw InvalidArgument{fmt::format("{} shards with {} places; expected one or more, and a place for each",
                                      shards.batches.size(), places.size())};
  const auto count = static_cast<std::int64_t>(places.size());
  if (!shard_sums_ || !shard_sums_->is_for(sum, count)) shard_sums_ = std::make_unique<ShardSums>(sum, count);
  ops::CrossEntropy total;
  for (std::size_t shard = 0; shard < places.size(); ++shard) {
    const ops::CrossEntropy own = train_shard(shards.batches[shard], places[shard], shard_sums_->next());
    shard_sums_->push(own.loss_sum);
    total.correct += own.correct;
  }
  total.loss_sum = shard_sums_->finish();
  return total;
}

}  // namespace lockstep::nn
