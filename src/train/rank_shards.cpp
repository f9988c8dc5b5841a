#include "train/rank_shards.hpp"

#include <lockstep/input/shards.hpp>

namespace lockstep {

BatchPart BatchPart::part(int parts, int number) const {
  const Range range = shard_range(static_cast<std::int64_t>(samples.size()), parts, number);
  return {samples.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size())),
          first + range.first};
}

RankShards::RankShards(const SampleSource& source, std::int64_t largest_batch, BatchCut cut, Range mine, Stream& stream)
    : source_{source},
      capacity_{shard_capacity(shard_capacity(largest_batch, cut.shards), cut.micro_batches)},
      cut_{cut},
      mine_{mine},
      stream_{stream} {}

RankShards::Loaded RankShards::load_all(std::span<const std::int64_t> batch, int micro_batch) {
  return load(all_, batch, mine_, micro_batch);
}

RankShards::Loaded RankShards::load_one(std::span<const std::int64_t> batch, std::int64_t shard, int micro_batch) {
  return load(one_, batch, {mine_.first + shard, mine_.first + shard + 1}, micro_batch);
}

RankShards::Loaded RankShards::load(std::optional<ShardLoader>& loader, std::span<const std::int64_t> batch,
                                    Range shards, int micro_batch) {
  if (!loader) loader.emplace(source_, capacity_, shards.size(), stream_);
  samples_.clear();
  first_samples_.clear();
  for (std::int64_t shard = shards.first; shard < shards.last; ++shard) {
    const BatchPart part =
        BatchPart{batch}.part(cut_.shards, static_cast<int>(shard)).part(cut_.micro_batches, micro_batch);
    samples_.push_back(part.samples);
    first_samples_.push_back(part.first);
  }
  return {loader->load(samples_), first_samples_};
}

}  // namespace lockstep
