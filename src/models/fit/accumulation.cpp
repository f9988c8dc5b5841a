#include "models/fit/accumulation.hpp"

#include "sync/reduce/arithmetic.hpp"

namespace lockstep {
namespace {

Tensor room_like(const TensorView& view, Stream& stream) {
  return Tensor::zeros(view.dtype(), view.shape(), stream);
}

}  // namespace

Accumulation::Accumulation(const nn::GradientBuffer& sum, int micro_batches)
    : gradients_{room_like(sum.flat(), sum.stream())},
      statistics_{room_like(sum.statistics(), sum.stream())},
      micro_batch_{sum.at(gradients_.view()).with_statistics(statistics_.view())},
      shard_{sum},
      micro_batches_{micro_batches} {}

void Accumulation::begin_shard(std::int64_t shard) {
  shard_ = shards_.of_shard(shard);
  number_ = 0;
  added_.assign(shard_.variables().size(), 0);
}

nn::GradientBuffer Accumulation::next() {
  return (number_ == 0 ? shard_ : micro_batch_).reporting_to(*this);
}

void Accumulation::on_ready(std::size_t variable) {
  const Variable& which = shard_.variables()[variable];
  if (number_ > 0) detail::add(shard_.of(which), micro_batch_.of(which), shard_.stream());
  if (++added_[variable] == micro_batches_) shard_.ready(which);
}

void Accumulation::push() {
  for (std::size_t variable = 0; variable < added_.size(); ++variable)
    if (added_[variable] == number_) on_ready(variable);
  if (number_ > 0 && statistics_.count() > 0) detail::add(shard_.statistics(), statistics_.view(), shard_.stream());
  ++number_;
}

}  // namespace lockstep
