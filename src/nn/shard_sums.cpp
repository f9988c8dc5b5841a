#include "shard_sums.hpp"

namespace lockstep::nn {

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

ShardSums::ShardSums(const GradientBuffer& sum, std::int64_t shards)
    : home_{sum},
      shards_{shards},
      gradient_sum_{sum.flat(), shards, sum.stream()},
      statistics_sum_{sum.statistics(), shards, sum.stream()} {}

bool ShardSums::is_for(const GradientBuffer& sum, std::int64_t shards) const {
  const auto same = [](const TensorView& a, const TensorView& b) {
    return a.data() == b.data() && a.count() == b.count() && a.dtype() == b.dtype();
  };
  return shards == shards_ && same(sum.flat(), home_.flat()) && same(sum.statistics(), home_.statistics());
}

GradientBuffer ShardSums::next() {
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

}  // namespace lockstep::nn
