#include "nn/shard_losses.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "reduce/fixed_order_sum.hpp"

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

void ShardLosses::push(ops::Answer<ops::Kernels::BatchLoss> loss, const SampleBatch& micro_batch) {
  parts_.push_back({std::move(loss), static_cast<double>(micro_batch.counted_labels())});
}

void ShardLosses::end_shard() {
  parts_.back().ends_shard = true;
}

ops::Kernels::BatchLoss ShardLosses::read() const {
  ops::Kernels::BatchLoss total;
  ops::Kernels::BatchLoss::Weighed of_shard;
  std::vector<double> of_shards;  // loss and weight of each
  for (const Part& part : parts_) {
    const ops::Kernels::BatchLoss own = part.loss.read();
    total.correct += own.correct;
    of_shard.loss += own.loss_sum;
    of_shard.weight += own.weight.value_or(part.labels);
    if (!part.ends_shard) continue;
    of_shards.insert(of_shards.end(), {of_shard.loss, of_shard.weight});
    of_shard = {};
  }
  std::array<double, 2> sums{};
  fixed_order_sum(view_of(of_shards), static_cast<int>(of_shards.size() / sums.size()), view_of(sums), Stream::host());
  total.loss_sum = sums[0];
  total.weight = sums[1];
  return total;
}

ops::Kernels::BatchLoss ShardLosses::read_shown_to(ShardWatch& watch, Stream& stream) const {
  stream.synchronize();
  for (std::size_t number = 0; number < parts_.size(); ++number) {
    if (!watch.wants(static_cast<std::int64_t>(number))) continue;
    ops::Kernels::BatchLoss loss = parts_[number].loss.read();
    if (!loss.weight) loss.weight = parts_[number].labels;
    loss.loss_sum += 0.0;  // as in a sum of micro-batches, where -0.0 becomes 0.0
    watch.on_loss(static_cast<std::int64_t>(number), loss);
  }
  return read();
}

}  // namespace lockstep::nn
