#include "models/fit/audit.hpp"

#include <algorithm>
#include <utility>

#include "core/control/busy_clock.hpp"
#include "models/nn/shard_losses.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

Audit::Audit(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
             const Shares& shares, const ShardRecords& records, AuditSchedule schedule, const StepFaults& faults)
    : strategy_{strategy},
      model_{model},
      sum_{sum},
      shards_{shards},
      shares_{shares},
      records_{records},
      schedule_{schedule},
      faults_{faults} {}

std::optional<std::int64_t> Audit::begin(std::int64_t step) {
  round_.reset();
  const std::optional<AuditSchedule::Turn> turn = schedule_.in(step);
  if (!turn) return std::nullopt;
  step_ = step;
  round_.emplace(inside(strategy_).group(), step, shares_, *turn);
  audited_ = round_->own() - shares_.of(strategy_.rank()).first;
  return audited_;
}

void Audit::reserve() {
  if (buffer_) return;
  buffer_.emplace(sum_, 1);
  if (shards_.micro_batches() > 1) accumulation_.emplace(buffer_->of_each().front(), shards_.micro_batches());
}

AuditedShard::Digests Audit::compute(std::int64_t shard, std::span<const std::int64_t> samples) {
  reserve();
  const nn::GradientBuffer& buffer = buffer_->of_each().front();
  const std::span<const Variable> variables = buffer.variables();
  ShardRecord record{variables.size()};
  nn::ShardLosses losses;
  if (accumulation_) {
    accumulation_->begin(buffer, 1);
    accumulation_->begin_shard(0);
  }
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded loaded = shards_.load_any(samples, shard, number);
    const SampleBatch& batch = loaded.group.batches.front();
    faults_.read(batch);
    record.add_samples(batch);
    BusyClock::enter(BusyClock::Part::forward);
    const nn::GradientBuffer gradients = accumulation_ ? accumulation_->next() : buffer;
    losses.push(0, model_.train_shard(batch, loaded.places(step_).front(), gradients), batch.counted_labels());
    if (accumulation_) accumulation_->push();
  }
  if (accumulation_) {
    accumulation_->end_shard();
    accumulation_->finish();
  }
  for (std::size_t variable = 0; variable < variables.size(); ++variable) {
    const TensorView gradient = buffer.of(variables[variable]);
    faults_.computed(StepFaults::foreign, variable, gradient);
    record.add_gradient(variable, gradient);
  }
  if (buffer.statistics().count() > 0) record.set_statistics(buffer.statistics());
  record.set_loss(losses.of_shard(0));
  return record.values();
}

void Audit::compare(std::span<const std::int64_t> samples, std::span<std::int64_t> integers) {
  AuditedShard::Digests of_other = records_.audited() > 0 ? records_.of_audited() : compute(other(), samples);
  round_->bring(records_.of(audited_), std::move(of_other));
  std::ranges::copy(round_->integers(), integers.begin());
}

void Audit::judge(std::span<const std::int64_t> samples, const Here& here) {
  // Ranks with other weights get other gradients, and all of them are right.
  strategy_.attest(model_.moving_averages(), here);
  round_->judge(
      records_.names(), [&](std::int64_t shard) { return compute(shard, samples); }, here);
}

}  // namespace lockstep
