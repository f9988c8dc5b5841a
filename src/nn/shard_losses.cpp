#include "nn/shard_losses.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace lockstep::nn {

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
  parts_.finish({reinterpret_cast<std::byte*>(total.data()), {2}, DType::f64});
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
  LossSum of_shards;
  for (const Part& part : parts_) {
    const ops::Kernels::BatchLoss own = part.loss.read();
    total.correct += own.correct;
    of_shard.loss += own.loss_sum;
    of_shard.weight += own.weight.value_or(part.labels);
    if (!part.ends_shard) continue;
    of_shards.push(std::exchange(of_shard, {}));
  }
  const ops::Kernels::BatchLoss::Weighed sums = of_shards.finish();
  total.loss_sum = sums.loss;
  total.weight = sums.weight;
  return total;
}

}  // namespace lockstep::nn
