// One audit: what ranks tell each other about shards that two of them have computed, and what follows if they differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>

#include "core/base/parts.hpp"
#include "core/order/shares.hpp"
#include "sync/strategy/audit_schedule.hpp"
#include "sync/strategy/audit_verdict.hpp"

namespace lockstep {

class ReplicaGroup;

/// The digest of a number among those of a shard.
LOCKSTEP_PARTS_API std::uint64_t digest_of_number(double number);

/// For a shard whose loss is not finite: `digests` say only that. Which NaN a sum keeps depends on its order.
LOCKSTEP_PARTS_API void say_only_not_finite(std::span<std::uint64_t> digests);

/// The audit of one step. Each rank brings digests of a shard of its own and of one of another rank, in a sum of the
/// step: as integers whose sum is 0 for each rank whose digests its auditor gets.
class LOCKSTEP_PARTS_API AuditRound {
 public:
  using Digests = AuditedShard::Digests;

  /// `step` counts from 0. Each rank has one of its shards, or more. `group` must outlive this object.
  AuditRound(ReplicaGroup& group, std::int64_t step, Shares shares, AuditSchedule::Turn turn);

  /// Shards of the batch: that of this rank that another computes too, and that of another that this one computes.
  std::int64_t own() const { return shard_of(rank_); }
  std::int64_t other() const { return shard_of(audited_by(rank_)); }

  /// LOCAL. Writes this rank's part of the integers.
  void bring(Digests own, Digests other);

  /// One for each rank: of this rank, to be replaced by their sums over the ranks.
  std::span<std::int64_t> integers() { return integers_; }

  /// LOCAL, once they are. Whether the audit is passed.
  bool passes() const {
    return std::ranges::all_of(integers_, [](std::int64_t sum) { return sum == 0; });
  }

  /// COLL, after an audit that is not passed, but not inside what an agreement covers. Throws AuditError on every rank
  /// (judge_audit, judge_sum).
  /// To tell who is wrong, each rank computes every shard in question once more: `compute` returns digests of the same
  /// values as those that were brought, named by `values`, or throws where this rank cannot compute them.
  [[noreturn]] void judge(std::span<const std::string> values,
                          const std::function<Digests(std::int64_t shard)>& compute, const Here& here) const;

 private:
  std::int64_t shard_of(int rank) const {
    const Range share = shares_.of(rank);
    return share.first + turn_.shard % share.size();
  }
  int audited_by(int rank) const { return (rank + turn_.ahead) % ranks_; }
  std::vector<AuditedShard> in_question(std::span<const std::int64_t> of_all, std::size_t values) const;

  ReplicaGroup& group_;
  std::int64_t step_;
  Shares shares_;
  AuditSchedule::Turn turn_;
  int rank_, ranks_;
  Digests own_, other_;
  std::vector<std::int64_t> integers_;
};

}  // namespace lockstep
