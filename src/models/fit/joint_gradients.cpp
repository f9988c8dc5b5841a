#include "models/fit/joint_gradients.hpp"

#include <utility>

#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/control/busy_clock.hpp"
#include "models/nn/joint_model.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/declared_sums.hpp"
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

void ShardBuffers::sum_up(const nn::GradientBuffer& sum) const {
  const int shards = static_cast<int>(of_each_.size());
  fixed_order_sum(gradients_.view(), shards, sum.flat(), stream_);
  if (statistics_.count() > 0) fixed_order_sum(statistics_.view(), shards, sum.statistics(), stream_);
}

JointGradients::JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards)
    : model_{model}, shards_{shards}, sums_{.dtype = sum.dtype()}, of_shards_{sum, shards.count()} {
  const std::vector<std::int64_t> of_micro_batch = model.joint_sums();
  for (int number = 0; number < shards.micro_batches(); ++number)
    sums_.counts.insert(sums_.counts.end(), of_micro_batch.begin(), of_micro_batch.end());
  if (shards.micro_batches() > 1) of_micro_batch_.emplace(sum, shards.count());
}

StartedShards JointGradients::compute(std::int64_t step, std::span<const std::int64_t> batch, DeclaredSums& ranks,
                                      const nn::GradientBuffer& sum, const Onlookers& onlookers) {
  std::int64_t labels = 0;
  nn::ShardLosses losses;
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded micro_batch = shards_.load_all(batch, number);
    onlookers.read(micro_batch.group);
    BusyClock::enter(BusyClock::Part::forward);
    const std::vector<nn::Model::ShardPlace> places = micro_batch.places(step);
    const ShardBuffers& own = number == 0 ? of_shards_ : *of_micro_batch_;
    const nn::JointModel::Losses started =
        model_.train_jointly({micro_batch.group, places, shards_.samples_of_all(batch, number)}, own.of_each(), ranks);
    if (number > 0) of_shards_.add(own);
    for (std::size_t shard = 0; shard < started.size(); ++shard)
      losses.push(static_cast<std::int64_t>(shard), started[shard], micro_batch.group.batches[shard]);
    labels += micro_batch.group.counted_labels();
  }
  if (onlookers.watch) show(*onlookers.watch, losses);
  of_shards_.sum_up(sum);
  for (const Variable& variable : sum.variables()) sum.ready(variable);
  return {labels, {sum.stream(), [losses = std::move(losses)] { return losses.read(); }}};
}

void JointGradients::show(nn::ShardWatch& watch, const nn::ShardLosses& losses) const {
  for (std::int64_t shard = 0; shard < shards_.count(); ++shard) {
    if (!watch.wants(shard)) continue;
    const nn::GradientBuffer& own = of_shards_.of_each()[static_cast<std::size_t>(shard)];
    for (std::size_t variable = 0; variable < own.variables().size(); ++variable)
      watch.on_gradient(shard, variable, own.of(own.variables()[variable]));
    if (own.statistics().count() > 0) watch.on_statistics(shard, own.statistics());
    own.stream().synchronize();
    watch.on_loss(shard, losses.of_shard(shard));
  }
}

}  // namespace lockstep
