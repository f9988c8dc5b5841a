#include "train/rank_shards.hpp"

#include <lockstep/input/shards.hpp>

namespace lockstep {

BatchPart BatchPart::part(int parts, int number) const {
  const Range range = shard_range(static_cast<std::int64_t>(samples.size()), parts, number);
  return {samples.subspan(static_cast<std::size_t>(range.first), static_cast<std::size_t>(range.size())),
          first + range.first};
}

RankShards::RankShards(const ImageSet& images, std::int64_t largest_batch, BatchCut cut, Range mine, DType dtype,
                       Stream& stream)
    : images_{images},
      cut_{cut},
      mine_{mine},
      batch_{shard_capacity(shard_capacity(largest_batch, cut.shards), cut.micro_batches), images.features(), dtype,
             stream} {}

}  // namespace lockstep
