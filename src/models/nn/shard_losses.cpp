#include "models/nn/shard_losses.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "sync/reduce/fixed_order_sum.hpp"

namespace lockstep::nn {

TensorView view_of(std::span<double> numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), {std::ssize(numbers)}, DType::f64};
}

ops::Kernels::BatchLoss::Weighed weighed(const ops::Kernels::BatchLoss& result, const SampleBatch& batch) {
  return {result.loss_sum, result.weight ? *result.weight : static_cast<double>(batch.counted_labels())};
}

void ShardLosses::push(std::int64_t shard, ops::Answer<ops::Kernels::BatchLoss> loss, std::int64_t labels) {
  const auto number = static_cast<std::size_t>(shard);
  if (number >= parts_.size()) parts_.resize(number + 1);
  parts_[number].push_back({std::move(loss), static_cast<double>(labels)});
}

ops::Kernels::BatchLoss ShardLosses::of_shard(std::int64_t shard) const {
  ops::Kernels::BatchLoss sum{.weight = 0};
  for (const Part& part : parts_[static_cast<std::size_t>(shard)]) {
    const ops::Kernels::BatchLoss own = part.loss.read();
    sum.loss_sum += own.loss_sum;
    sum.correct += own.correct;
    *sum.weight += own.weight.value_or(part.labels);
  }
  return sum;
}

ops::Kernels::BatchLoss ShardLosses::read(const Range& shards) const {
  ops::Kernels::BatchLoss total;
  std::vector<double> of_shards;  // loss and weight of each
  for (std::int64_t shard = shards.first; shard < shards.last; ++shard) {
    const ops::Kernels::BatchLoss own = of_shard(shard);
    total.correct += own.correct;
    of_shards.insert(of_shards.end(), {own.loss_sum, *own.weight});
  }
  std::array<double, 2> sums{};
  fixed_order_sum(view_of(of_shards), static_cast<int>(shards.size()), view_of(sums), Stream::host());
  total.loss_sum = sums[0];
  total.weight = sums[1];
  return total;
}

ops::Kernels::BatchLoss ShardLosses::read_shown_to(ShardWatch& watch, Stream& stream) const {
  stream.synchronize();
  for (std::int64_t shard = 0; shard < std::ssize(parts_); ++shard)
    if (watch.wants(shard)) watch.on_loss(shard, of_shard(shard));
  return read({0, std::ssize(parts_) - watch.audited()});
}

}  // namespace lockstep::nn
