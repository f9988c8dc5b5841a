#include "fit/audit.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <lockstep/base/error.hpp>

#include "base/digest.hpp"
#include "control/busy_clock.hpp"
#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "strategy/replica_group.hpp"

namespace lockstep {
namespace {

std::uint64_t digest_of_all(const AuditedShard::Digests& digests) {
  return digest_of(std::as_bytes(std::span{digests}));
}

}  // namespace

Audit::Audit(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
             const ShardRecords& records, AuditSchedule schedule, const std::optional<InjectedFault>& fault)
    : strategy_{strategy},
      model_{model},
      sum_{sum},
      shards_{shards},
      records_{records},
      schedule_{schedule},
      fault_{fault},
      rank_{strategy.rank()},
      ranks_{strategy.num_replicas_in_sync()} {}

std::optional<AuditSchedule::Turn> Audit::begin(std::int64_t step) {
  step_ = step;
  differ_.clear();
  return turn_ = schedule_.in(step);
}

std::int64_t Audit::shard_of(int rank) const {
  return rank * shards_.count() + turn_->shard;
}

int Audit::owner_audited_by(int rank) const {
  return (rank + turn_->ahead) % ranks_;
}

void Audit::reserve() {
  if (buffer_) return;
  Stream& stream = sum_.stream();
  gradients_ = Tensor::zeros(sum_.dtype(), {sum_.count()}, stream);
  statistics_ = Tensor::zeros(sum_.dtype(), {sum_.statistics().count()}, stream);
  buffer_ = sum_.at(gradients_.view()).with_statistics(statistics_.view());
  if (shards_.micro_batches() > 1) accumulation_.emplace(*buffer_, shards_.micro_batches());
}

AuditedShard::Digests Audit::compute(std::int64_t shard, std::span<const std::int64_t> samples) {
  reserve();
  const std::span<const Variable> variables = buffer_->variables();
  ShardRecord record{variables.size()};
  ops::Kernels::BatchLoss loss;
  if (accumulation_) {
    accumulation_->begin(*buffer_, 1);
    accumulation_->begin_shard(0);
  }
  for (int number = 0; number < shards_.micro_batches(); ++number) {
    BusyClock::enter(BusyClock::Part::data);
    const RankShards::Loaded loaded = shards_.load_any(samples, shard, number);
    const SampleBatch& batch = loaded.group.batches.front();
    if (fault_ && fault_->misreads(rank_, step_)) fault_->misread(batch, strategy_.stream());
    record.add_samples(batch);
    BusyClock::enter(BusyClock::Part::forward);
    const nn::GradientBuffer gradients = accumulation_ ? accumulation_->next() : *buffer_;
    add_loss(loss, model_.train_shard(batch, loaded.places(step_).front(), gradients), batch);
    if (accumulation_) accumulation_->push();
  }
  if (accumulation_) {
    accumulation_->end_shard();
    accumulation_->finish();
  }
  for (std::size_t variable = 0; variable < variables.size(); ++variable) {
    const TensorView gradient = buffer_->of(variables[variable]);
    if (fault_ && fault_->miscomputes_still(rank_, step_))
      fault_->miscompute(gradient, variable, variables.size(), sum_.stream());
    record.set_gradient(variable, gradient);
  }
  if (buffer_->statistics().count() > 0) record.set_statistics(buffer_->statistics());
  record.set_loss(loss);
  return record.values();
}

void Audit::compute_other(std::span<const std::int64_t> samples, std::span<std::int64_t> integers) {
  const int owner = owner_audited_by(rank_);
  of_other_ = compute(shard_of(owner), samples);
  // Unsigned, since these sums wrap around.
  std::vector<std::uint64_t> parts(integers.size());
  parts[static_cast<std::size_t>(rank_)] += digest_of_all(records_.of(turn_->shard));
  parts[static_cast<std::size_t>(owner)] -= digest_of_all(of_other_);
  std::ranges::transform(parts, integers.begin(), [](std::uint64_t part) { return static_cast<std::int64_t>(part); });
}

bool Audit::passes(std::span<const std::int64_t> sums) {
  for (std::size_t owner = 0; owner < sums.size(); ++owner)
    if (sums[owner] != 0) differ_.push_back(static_cast<int>(owner));
  return differ_.empty();
}

void Audit::require_passed(std::span<const std::int64_t> samples, const Here& here) {
  if (differ_.empty()) return;
  // Ranks with other weights get other gradients, and all of them are right.
  strategy_.attest(model_.moving_averages(), here);
  MeetingPoint& meeting = strategy_.group().meeting();
  const auto gather = [&](const AuditedShard::Digests& mine) {
    return meeting.gather({reinterpret_cast<const std::int64_t*>(mine.data()), mine.size()});
  };
  AuditedShard::Digests mine = records_.of(turn_->shard);
  mine.insert(mine.end(), of_other_.begin(), of_other_.end());
  std::vector<AuditedShard> shards = in_question(gather(mine));
  for (AuditedShard& each : shards) {
    // The others wait for this rank, also if it fails.
    AuditedShard::Digests again;
    try {
      again = compute(each.shard, samples);
      again.push_back(1);
    } catch (...) {
      again.assign(records_.names().size() + 1, 0);
    }
    const std::vector<std::int64_t> all = gather(again);
    const std::int64_t values = std::ssize(records_.names());
    for (auto of_rank = all.begin(); of_rank != all.end(); of_rank += values + 1)
      each.again.emplace_back(of_rank, of_rank[values] == 1 ? of_rank + values : of_rank);
  }
  throw_verdict(judge_audit(step_ + 1, records_.names(), shards, meeting.names()), here);
}

/// `of_all` holds what each rank got for its own shard, and then for the other's.
std::vector<AuditedShard> Audit::in_question(std::span<const std::int64_t> of_all) const {
  const std::size_t values = records_.names().size();
  const auto digests = [&](int rank, std::size_t which) {
    const auto part = of_all.subspan((static_cast<std::size_t>(rank) * 2 + which) * values, values);
    return AuditedShard::Digests(part.begin(), part.end());
  };
  std::vector<AuditedShard> shards;
  for (const int owner : differ_) {
    const int auditor = (owner - turn_->ahead + ranks_) % ranks_;
    shards.push_back({shard_of(owner), owner, auditor, digests(owner, 0), digests(auditor, 1), {}});
  }
  return shards;
}

void Audit::throw_verdict(const Verdict& verdict, const Here& here) {
  MeetingPoint& meeting = strategy_.group().meeting();
  if (ranks_ == 1) meeting.fail(verdict.exception);
  // The ranks differ by their numbers, so that they all get the verdict.
  const detail::Comparison comparison{static_cast<std::uint64_t>(rank_) + 1,
                                      [&](ControlChannel&, std::span<const std::string>) { return verdict; }};
  meeting.agree(TagKind::attest, 0, here, "an audit", comparison);
  std::rethrow_exception(verdict.exception);
}

}  // namespace lockstep
