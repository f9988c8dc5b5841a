#include "models/fit/accumulation.hpp"

#include "models/nn/shard_sums.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/fixed_order_sum.hpp"

namespace lockstep {
ShardBuffers::ShardBuffers(const nn::GradientBuffer& like, std::int64_t shards)
    : stream_{like.stream()},
      gradients_{Tensor::zeros(like.dtype(), {shards * like.count()}, stream_)},
      statistics_{Tensor::zeros(like.dtype(), {shards * like.statistics().count()}, stream_)} {
  const auto part = [](const Tensor& whole, const TensorView& own, std::int64_t number) {
    return whole.view().slice(number * own.count(), own.count());
  };
  for (std::int64_t i = 0; i < shards; ++i)
    of_each_.push_back(
        like.at(part(gradients_, like.flat(), i)).with_statistics(part(statistics_, like.statistics(), i)));
}

void ShardBuffers::add(const ShardBuffers& others) {
  detail::add(gradients_.view(), others.gradients_.view(), stream_);
  if (statistics_.count() > 0) detail::add(statistics_.view(), others.statistics_.view(), stream_);
}

void ShardBuffers::sum_up(const Range& shards, const nn::GradientBuffer& sum) const {
  const auto add_up = [&](const Tensor& all, const TensorView& to) {
    const TensorView parts = all.view().slice(shards.first * to.count(), shards.size() * to.count());
    if (to.count() > 0) fixed_order_sum(parts, static_cast<int>(shards.size()), to, stream_);
  };
  add_up(gradients_, sum.flat());
  add_up(statistics_, sum.statistics());
}

Accumulation::Accumulation(const nn::GradientBuffer& sum, int micro_batches)
    : room_{sum, 1}, micro_batch_{room_.of_each().front()}, shard_{sum}, micro_batches_{micro_batches} {}

void Accumulation::begin_shard(std::int64_t shard) {
  shard_ = shards_.of_shard(shard);
  number_ = 0;
  added_.assign(shard_.variables().size(), 0);
}

nn::GradientBuffer Accumulation::next() {
  return inside(number_ == 0 ? shard_ : micro_batch_).reporting_to(*this);
}

void Accumulation::on_ready(std::size_t variable) {
  const Variable& which = shard_.variables()[variable];
  if (number_ > 0) detail::add(shard_.of(which), micro_batch_.of(which), shard_.stream());
  if (++added_[variable] == micro_batches_) shard_.ready(which);
}

void Accumulation::push() {
  for (std::size_t variable = 0; variable < added_.size(); ++variable)
    if (added_[variable] == number_) on_ready(variable);
  if (const TensorView& more = micro_batch_.statistics(); number_ > 0 && more.count() > 0)
    detail::add(shard_.statistics(), more, shard_.stream());
  ++number_;
}

}  // namespace lockstep
