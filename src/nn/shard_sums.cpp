#include "nn/shard_sums.hpp"

#include <array>

namespace lockstep::nn {
namespace {

bool same(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.count() == b.count() && a.dtype() == b.dtype();
}

}  // namespace

WeighedLoss weighed(const ops::BatchLoss& result, const SampleBatch& batch) {
  return {result.loss_sum, result.weight ? *result.weight : static_cast<double>(batch.counted_labels())};
}

void LossSum::push(const WeighedLoss& own) {
  const auto part = parts_.next().elements<double>();
  part[0] = own.loss;
  part[1] = own.weight;
  parts_.push();
}

WeighedLoss LossSum::finish() {
  std::array<double, 2> total{};
  parts_.finish({reinterpret_cast<std::byte*>(total.data()), {2}, DType::f64});
  return {total[0], total[1]};
}

ShardSums::ShardSums(const GradientBuffer& sum)
    : home_{sum}, gradient_sum_{sum.flat(), sum.stream()}, statistics_sum_{sum.statistics(), sum.stream()} {}

bool ShardSums::is_for(const GradientBuffer& sum) const {
  return same(sum.flat(), home_.flat()) && same(sum.statistics(), home_.statistics());
}

void ShardSums::begin() {
  gradient_sum_.clear();
  statistics_sum_.clear();
  loss_sum_.clear();
}

GradientBuffer ShardSums::next() {
  const GradientBuffer own = home_.at(gradient_sum_.next());
  return home_.statistics().count() > 0 ? own.with_statistics(statistics_sum_.next()) : own;
}

void ShardSums::push(const WeighedLoss& own) {
  gradient_sum_.push();
  statistics_sum_.push();
  loss_sum_.push(own);
}

WeighedLoss ShardSums::finish() {
  gradient_sum_.finish(home_.flat());
  statistics_sum_.finish(home_.statistics());
  return loss_sum_.finish();
}

GradientSums::GradientSums(const GradientBuffer& sum, std::span<const Variable> variables) : home_{sum} {
  for (const Variable& variable : variables) {
    sums_.push_back(sum.of(variable));
    parts_.emplace_back(sums_.back(), sum.stream());
  }
}

bool GradientSums::is_for(const GradientBuffer& sum) const {
  return same(sum.flat(), home_.flat());
}

FixedOrderAccumulator& GradientSums::begin(std::size_t variable) {
  parts_[variable].clear();
  return parts_[variable];
}

void GradientSums::finish(std::size_t variable) {
  parts_[variable].finish(sums_[variable]);
}

}  // namespace lockstep::nn
