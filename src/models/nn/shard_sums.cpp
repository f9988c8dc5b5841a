#include "models/nn/shard_sums.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "sync/reduce/arithmetic.hpp"

namespace lockstep::nn {
namespace {

/// Buffers of one layout share the list.
bool have_one_layout(const GradientBuffer& a, const GradientBuffer& b) {
  return a.variables().data() == b.variables().data();
}

}  // namespace

bool is_same_memory(const TensorView& a, const TensorView& b) {
  return a.data() == b.data() && a.count() == b.count() && a.dtype() == b.dtype();
}

void ShardSums::begin(const GradientBuffer& sum, std::int64_t shards, ShardWatch* watch) {
  if (!sum_ || !have_one_layout(sum, *sum_)) {
    places_.clear();
  } else if (!places_.empty() && !is_same_memory(sum.flat(), sum_->flat())) {
    places_.front() = place_of({}, sum);
  }
  if (!sum_ || !is_same_memory(sum.statistics(), sum_->statistics()))
    statistics_sum_.emplace(sum.statistics(), sum.stream());
  sum_ = sum;
  watch_ = watch;
  audited_ = watch ? watch->audited() : 0;
  shards_ = shards - audited_;
  pushed_ = 0;
  added_.assign(sum.variables().size(), 0);
  statistics_sum_->clear();
  reserve();
}

void ShardSums::reserve() {
  const auto of_own = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(shards_)));
  while (places_.size() < (audited_ > 0 ? std::max(of_own, place_for(shards_) + 1) : of_own)) {
    Tensor memory = places_.empty() ? Tensor{} : Tensor::zeros(sum_->dtype(), {sum_->count()}, sum_->stream());
    const GradientBuffer buffer = places_.empty() ? *sum_ : sum_->at(memory.view());
    places_.push_back(place_of(std::move(memory), buffer));
  }
}

ShardSums::Place ShardSums::place_of(Tensor memory, const GradientBuffer& buffer) {
  std::vector<TensorView> gradients;
  for (const Variable& variable : buffer.variables()) gradients.push_back(buffer.of(variable));
  return {std::move(memory), inside(buffer).reporting_to(*this), std::move(gradients)};
}

// The places work like a binary counter. Before shard i, popcount(i) of them are in use, for sums over runs of shards
// of decreasing lengths, which are the bits of i. An audited shard comes when only the first is.
std::size_t ShardSums::place_for(std::int64_t shard) const {
  return is_audited(shard) ? 1 : static_cast<std::size_t>(std::popcount(static_cast<std::uint64_t>(shard)));
}

GradientBuffer ShardSums::of_shard(std::int64_t shard) {
  const GradientBuffer& own = places_[place_for(shard)].buffer;
  return sum_->statistics().count() > 0 ? own.with_statistics(statistics_sum_->next()) : own;
}

void ShardSums::on_ready(std::size_t variable) {
  const std::int64_t shard = added_[variable];
  if (shard == shards_ + audited_) throw_ready_before(variable);
  ++added_[variable];
  const std::size_t place = place_for(shard), used = place + 1;
  if (watch_ && watch_->wants(shard)) watch_->on_gradient(shard, variable, places_[place].gradients[variable]);
  if (is_audited(shard)) return;
  if (added_[variable] < shards_)
    return add_up(variable, used - static_cast<std::size_t>(std::countr_one(static_cast<std::uint64_t>(shard))), used);
  // If the number of shards is not a power of two, several runs are left; the tree joins them from the right.
  add_up(variable, 1, used);
  sum_->ready(sum_->variables()[variable]);
}

void ShardSums::throw_ready_before(std::size_t variable) const {
  throw InvalidArgument{fmt::format("the gradient of variable {} was ready twice in a backward pass",
                                    sum_->variables()[variable].label())};
}

/// Joins the last of `used` places until `left` are.
void ShardSums::add_up(std::size_t variable, std::size_t left, std::size_t used) {
  for (; used > left; --used)
    detail::add(places_[used - 2].gradients[variable], places_[used - 1].gradients[variable], sum_->stream());
}

void ShardSums::push() {
  for (std::size_t variable = 0; variable < added_.size(); ++variable) {
    if (added_[variable] == pushed_) on_ready(variable);
    if (added_[variable] > pushed_ + 1) throw_ready_before(variable);
  }
  if (watch_ && watch_->wants(pushed_) && sum_->statistics().count() > 0)
    watch_->on_statistics(pushed_, statistics_sum_->next());
  if (!is_audited(pushed_++)) statistics_sum_->push();
}

bool ShardSums::can_be_at_once() const {
  if (!watch_) return true;
  for (std::int64_t shard = 0; shard < shards_ + audited_; ++shard)
    if (watch_->wants(shard) && !watch_->takes_parts(shard)) return false;
  return true;
}

std::function<void(const TensorView& part)> ShardSums::shown_of(std::int64_t shard, const Variable& variable) const {
  if (!watch_ || !watch_->wants(shard)) return {};
  return [watch = watch_, shard, position = sum_->position_of(variable)](const TensorView& part) {
    watch->on_gradient(shard, position, part);
  };
}

void ShardSums::sum_is_ready(const Variable& variable) {
  sum_->ready(variable);
}

void ShardSums::finish() {
  statistics_sum_->finish(sum_->statistics());
}

}  // namespace lockstep::nn
