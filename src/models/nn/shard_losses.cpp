#include "models/nn/shard_losses.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "sync/reduce/fixed_order_sum.hpp"

namespace lockstep::nn {
namespace {

TensorView view_of(std::span<double> numbers) {
  return {reinterpret_cast<std::byte*>(numbers.data()), {std::ssize(numbers)}, DType::f64};
}

}  // namespace

ops::Kernels::BatchLoss::Weighed weighed(const ops::Kernels::BatchLoss& result, const SampleBatch& batch) {
  return {result.loss_sum, result.weight ? *result.weight : static_cast<double>(batch.counted_labels())};
}

void LossSum::push(const ops::Kernels::BatchLoss::Weighed& own) {
  const auto part = parts_.next().elements<double>();
  part[0] = own.loss;
  part[1] = own.weight;
  parts_.push();
}

ops::Kernels::BatchLoss::Weighed LossSum::finish() {
  std::array<double, 2> total{};
  parts_.finish(view_of(total));
  return {total[0], total[1]};
}

void ShardLosses::push(std::int64_t shard, ops::Answer<ops::Kernels::BatchLoss> loss, const SampleBatch& micro_batch) {
  const auto number = static_cast<std::size_t>(shard);
  if (number >= parts_.size()) parts_.resize(number + 1);
  parts_[number].push_back({std::move(loss), static_cast<double>(micro_batch.counted_labels())});
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

ops::Kernels::BatchLoss ShardLosses::sum_of(std::size_t shards) const {
  ops::Kernels::BatchLoss total;
  std::vector<double> of_shards;  // loss and weight of each
  for (std::size_t shard = 0; shard < shards; ++shard) {
    const ops::Kernels::BatchLoss own = of_shard(static_cast<std::int64_t>(shard));
    total.correct += own.correct;
    of_shards.insert(of_shards.end(), {own.loss_sum, *own.weight});
  }
  std::array<double, 2> sums{};
  fixed_order_sum(view_of(of_shards), static_cast<int>(shards), view_of(sums), Stream::host());
  total.loss_sum = sums[0];
  total.weight = sums[1];
  return total;
}

ops::Kernels::BatchLoss ShardLosses::read_shown_to(ShardWatch& watch, Stream& stream) const {
  stream.synchronize();
  for (std::int64_t shard = 0; shard < std::ssize(parts_); ++shard)
    if (watch.wants(shard)) watch.on_loss(shard, of_shard(shard));
  return sum_of(parts_.size() - static_cast<std::size_t>(watch.audited()));
}

}  // namespace lockstep::nn
