#include "train/shard_sums.hpp"

namespace lockstep {

ShardSum::ShardSum(const TensorView& sum, std::int64_t shards, Stream& stream) : sum_{sum} {
  if (shards > 1 && sum.count() > 0) parts_.emplace(sum.dtype(), sum.count(), stream);
}

TensorView ShardSum::next() {
  return parts_ ? parts_->next() : sum_;
}

void ShardSum::push() {
  if (parts_) parts_->push();
}

void ShardSum::finish() {
  if (parts_) parts_->finish(sum_);
}

void LossSum::push(double loss) {
  parts_.next().elements<double>()[0] = loss;
  parts_.push();
}

double LossSum::finish() {
  double total = 0;
  parts_.finish({reinterpret_cast<std::byte*>(&total), {1}, DType::f64});
  return total;
}

ShardSums::ShardSums(const nn::GradientBuffer& gradients, std::int64_t statistics, std::int64_t shards)
    : home_{gradients},
      statistics_{Tensor::zeros(gradients.dtype(), {statistics}, gradients.stream())},
      gradient_sum_{gradients.flat(), shards, gradients.stream()},
      statistics_sum_{statistics_.view(), shards, gradients.stream()} {}

nn::GradientBuffer ShardSums::next() {
  return home_.at(gradient_sum_.next()).with_statistics(statistics_sum_.next());
}

void ShardSums::push(double loss) {
  gradient_sum_.push();
  statistics_sum_.push();
  loss_sum_.push(loss);
}

double ShardSums::finish() {
  gradient_sum_.finish();
  statistics_sum_.finish();
  return loss_sum_.finish();
}

}  // namespace lockstep
