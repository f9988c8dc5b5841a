#include "models/fit/step_checks.hpp"

#include <algorithm>

namespace lockstep {

StepChecks::StepChecks(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
                       const Shares& shares, const FitOptions& options, bool takes_audited, const StepFaults& faults)
    : options_{options},
      rank_{strategy.rank()},
      ranks_{strategy.num_replicas_in_sync()},
      shares_{shares},
      takes_audited_{takes_audited},
      records_{sum, shards.count(), faults} {
  if (!options.audit_every) return;
  const AuditSchedule schedule{*options.audit_every, options.seed, ranks_, shares_.largest()};
  audit_.emplace(strategy, model, sum, shards, shares_, records_, schedule, faults);
}

void StepChecks::begin(std::int64_t step) {
  const std::optional<std::int64_t> audited = audit_ ? audit_->begin(step) : std::nullopt;
  const std::optional<std::int64_t> every = options_.record_every;
  audits_ = audited.has_value();
  passes_ = true;
  records_step_ = every && ((step + 1) % *every == 0 || step + 1 == options_.steps);
  const std::int64_t first = audited.value_or(0);
  if (!looks()) return;
  const Range kept = records_step_ ? Range{0, shares_.of(rank_).size()} : Range{first, first + 1};
  records_.begin(kept, audits_ && takes_audited_);
}

std::optional<std::int64_t> StepChecks::audited() const {
  if (!audits_ || !takes_audited_) return std::nullopt;
  return audit_->other();
}

void StepChecks::read(std::int64_t first, const SampleBatch::Group& micro_batch) {
  if (!looks()) return;
  for (const SampleBatch& each : micro_batch.batches) records_.read(first++, each);
}

std::int64_t StepChecks::integers() const {
  const std::int64_t digests = records_step_ ? options_.shards * std::ssize(records_.names()) : 0;
  return (audits_ ? ranks_ : 0) + digests;
}

void StepChecks::bring(std::span<const std::int64_t> samples, std::span<std::int64_t> integers) {
  if (audits_) audit_->compare(samples, integers.first(first_digest()));
  if (!records_step_) return;
  const Range own = shares_.of(rank_);
  auto place =
      integers.begin() + static_cast<std::ptrdiff_t>(first_digest()) + own.first * std::ssize(records_.names());
  for (std::int64_t shard = 0; shard < own.size(); ++shard)
    for (const std::uint64_t digest : records_.of(shard)) *place++ = static_cast<std::int64_t>(digest);
}

bool StepChecks::take(std::span<const std::int64_t> sums) {
  const auto digests = sums.subspan(first_digest());
  digests_.assign(digests.begin(), digests.end());
  passes_ = !audits_ || audit_->passes(sums.first(first_digest()));
  return passes_;
}

void StepChecks::require_passed(std::span<const std::int64_t> samples, const Here& here) {
  if (!passes_) audit_->judge(samples, here);
}

void StepChecks::tell(Observer& observer, std::int64_t step, double loss) const {
  if (records_step_) observer.on_digests({step, loss, records_.names(), digests_});
}

}  // namespace lockstep
