#include "train/accumulation.hpp"

#include "reduce/arithmetic.hpp"

namespace lockstep {
namespace {

Tensor room_like(const TensorView& view, Stream& stream) {
  return Tensor::zeros(view.dtype(), view.shape(), stream);
}

/// sum += own, for gradients and statistics.
void add_up(const nn::GradientBuffer& sum, const nn::GradientBuffer& own) {
  detail::add(sum.flat(), own.flat(), sum.stream());
  if (sum.statistics().count() > 0) detail::add(sum.statistics(), own.statistics(), sum.stream());
}

}  // namespace

Accumulation::Accumulation(const nn::GradientBuffer& sum)
    : shards_{sum},
      gradients_{room_like(sum.flat(), sum.stream())},
      statistics_{room_like(sum.statistics(), sum.stream())},
      micro_batch_{sum.at(gradients_.view()).with_statistics(statistics_.view())},
      shard_{sum} {}

void Accumulation::begin_shard() {
  shard_ = shards_.next();
  loss_ = {};
  first_ = true;
}

nn::GradientBuffer Accumulation::next() const {
  return first_ ? shard_ : micro_batch_;
}

void Accumulation::push(const nn::WeighedLoss& own) {
  if (!first_) add_up(shard_, micro_batch_);
  first_ = false;
  loss_.loss += own.loss;
  loss_.weight += own.weight;
}

void Accumulation::end_shard() {
  shards_.push(loss_);
}

nn::WeighedLoss Accumulation::finish() {
  return shards_.finish();
}

}  // namespace lockstep
