#include "models/fit/joint_gradients.hpp"

#include <utility>

#include "core/control/busy_clock.hpp"
#include "models/nn/joint_model.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep {

JointGradients::JointGradients(nn::JointModel& model, const nn::GradientBuffer& sum, RankShards& shards)
    : model_{model}, shards_{shards}, sums_{.dtype = sum.dtype()}, of_shards_{sum, shards.count()} {
  const std::vector<std::int64_t> of_micro_batch = model.joint_sums();
  for (int number = 0; number < shards.micro_batches(); ++number)
    sums_.counts.insert(sums_.counts.end(), of_micro_batch.begin(), of_micro_batch.end());
  if (shards.micro_batches() > 1) of_micro_batch_.emplace(sum, shards.count());
}

std::vector<StartedShards> JointGradients::compute(std::int64_t step, std::span<const std::int64_t> batch,
                                                   DeclaredSums& ranks, std::span<const Subtree> subtrees,
                                                   const Onlookers& onlookers) {
  std::int64_t labels = 0;
  nn::ShardLosses losses;
  std::vector<Range> shards;
  for (const Subtree& each : subtrees) shards.push_back(each.shards);
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded micro_batch = shards_.load_all(batch, number);
    onlookers.read(micro_batch.group);
    BusyClock::enter(BusyClock::Part::forward);
    const std::vector<nn::Model::ShardPlace> places = micro_batch.places(step);
    const ShardBuffers& own = number == 0 ? of_shards_ : *of_micro_batch_;
    const nn::JointModel::Losses started = model_.train_jointly(
        {micro_batch.group, places, shards_.samples_of_all(batch, number), shards}, own.of_each(), ranks);
    if (number > 0) of_shards_.add(own);
    for (std::size_t shard = 0; shard < started.size(); ++shard)
      losses.push(static_cast<std::int64_t>(shard), started[shard], micro_batch.group.batches[shard].counted_labels());
    labels += micro_batch.group.counted_labels();
  }
  if (onlookers.watch) show(*onlookers.watch, losses);
  std::vector<StartedShards> all;
  for (const auto& [own, sum] : subtrees) {
    of_shards_.sum_up(own, sum);
    for (const Variable& variable : sum.variables()) sum.ready(variable);
    all.push_back({std::exchange(labels, 0), {sum.stream(), [losses, part = own] { return losses.read(part); }}});
  }
  return all;
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
