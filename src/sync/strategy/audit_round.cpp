#include "sync/strategy/audit_round.hpp"

#include <exception>
#include <utility>

#include "core/base/digest.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"

namespace lockstep {
namespace {

using Digests = AuditRound::Digests;

std::uint64_t digest_of_all(const Digests& digests) {
  return digest_of(std::as_bytes(std::span{digests}));
}

std::vector<std::int64_t> gather(MeetingPoint& meeting, const Digests& mine) {
  return meeting.gather({reinterpret_cast<const std::int64_t*>(mine.data()), mine.size()});
}

/// COLL. What every rank gets for a shard now; empty for one that cannot compute it. A rank that can adds a 1 after its
/// digests; one that cannot brings zeros, because the others wait for it.
std::vector<Digests> computed_again(MeetingPoint& meeting, std::size_t values,
                                    const std::function<Digests()>& compute) {
  Digests mine;
  try {
    mine = compute();
    mine.push_back(1);
  } catch (...) {
    mine.assign(values + 1, 0);
  }
  const std::vector<std::int64_t> all = gather(meeting, mine);
  std::vector<Digests> again;
  for (auto of_rank = all.begin(); of_rank != all.end(); of_rank += std::ssize(mine)) {
    const auto end = of_rank + static_cast<std::ptrdiff_t>(values);
    again.emplace_back(of_rank, *end == 1 ? end : of_rank);
  }
  return again;
}

}  // namespace

std::uint64_t digest_of_number(double number) {
  return digest_of(std::as_bytes(std::span{&number, 1}));
}

void say_only_not_finite(std::span<std::uint64_t> digests) {
  std::ranges::fill(digests, 0);
  digests.back() = digest_of("not finite");
}

AuditRound::AuditRound(ReplicaGroup& group, std::int64_t step, Shares shares, AuditSchedule::Turn turn)
    : group_{group},
      step_{step},
      shares_{std::move(shares)},
      turn_{turn},
      rank_{group.meeting().rank()},
      ranks_{group.meeting().size()},
      integers_(static_cast<std::size_t>(ranks_)) {}

void AuditRound::bring(Digests own, Digests other) {
  own_ = std::move(own);
  other_ = std::move(other);
  // Unsigned, since these sums wrap around.
  std::vector<std::uint64_t> parts(integers_.size());
  parts[static_cast<std::size_t>(rank_)] += digest_of_all(own_);
  parts[static_cast<std::size_t>(audited_by(rank_))] -= digest_of_all(other_);
  std::ranges::transform(parts, integers_.begin(), [](std::uint64_t part) { return static_cast<std::int64_t>(part); });
}

/// Those that owner and auditor compute otherwise. `of_all` holds what each rank got for its own shard, and then for
/// the other's. Only this says which shards they are: the sums may be wrong themselves.
std::vector<AuditedShard> AuditRound::in_question(std::span<const std::int64_t> of_all, std::size_t values) const {
  const auto digests = [&](int rank, std::size_t which) {
    const auto part = of_all.subspan((static_cast<std::size_t>(rank) * 2 + which) * values, values);
    return Digests(part.begin(), part.end());
  };
  std::vector<AuditedShard> shards;
  for (int owner = 0; owner < ranks_; ++owner) {
    const int auditor = (owner - turn_.ahead + ranks_) % ranks_;
    AuditedShard shard{shard_of(owner), owner, auditor, digests(owner, 0), digests(auditor, 1), {}};
    if (shard.of_owner != shard.of_auditor) shards.push_back(std::move(shard));
  }
  return shards;
}

void AuditRound::judge(std::span<const std::string> values, const std::function<Digests(std::int64_t)>& compute,
                       const Here& here) const {
  MeetingPoint& meeting = group_.meeting();
  Digests mine = own_;
  mine.insert(mine.end(), other_.begin(), other_.end());
  std::vector<AuditedShard> shards = in_question(gather(meeting, mine), values.size());
  for (AuditedShard& each : shards)
    each.again = computed_again(meeting, values.size(), [&] { return compute(each.shard); });
  const Verdict verdict =
      shards.empty() ? judge_sum(step_ + 1) : judge_audit(step_ + 1, values, shards, meeting.names());
  if (ranks_ == 1) meeting.fail(verdict.exception);
  // The ranks differ by their numbers, so that they all get the verdict.
  const detail::Comparison comparison{static_cast<std::uint64_t>(rank_) + 1,
                                      [&](ControlChannel&, std::span<const std::string>) { return verdict; }};
  meeting.agree(TagKind::attest, 0, here, "an audit", comparison);
  std::rethrow_exception(verdict.exception);
}

}  // namespace lockstep
