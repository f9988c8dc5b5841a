// What apply_gradients asks of an audit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/sync/optim/audit.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/order/shares.hpp"
#include "sync/strategy/audit_round.hpp"

namespace lockstep {

struct Optimizer::Audit::Results::Kept {
  std::vector<std::string> names;
  AuditRound::Digests digests;
  bool is_finite = true;
  bool digests_wanted = true;  ///< if not, only the names are kept
};

struct Optimizer::Audit::Impl {
  Impl(Strategy& strategy, const Options& options, Compute compute);

  /// LOCAL. Computes a shard; keeps what it yields if it is the one of this rank that is audited.
  void compute_own(std::int64_t shard);

  /// LOCAL, after this rank's shards. Computes the other rank's, if the step is audited, and fills the integers in.
  void compute_other();

  int shards() const { return shares_.shards(); }

  /// Whether other shards are computed before this step's gradients have been added up.
  bool is_turn() const { return round_.has_value(); }

  /// What the ranks compare before the step; empty if it is not audited. Names results if shards were computed before.
  std::string text() const;

  /// Of the step's sums: this rank's, and then those of all ranks. None if the step is not audited.
  std::span<std::int64_t> integers() { return round_ ? round_->integers() : std::span<std::int64_t>{}; }

  /// LOCAL, once these are the sums.
  bool passes() const { return !round_ || round_->passes(); }

  /// COLL, after the step.
  void end_step(ReplicaContext& context, const Here& here);

 private:
  void begin_step();
  std::uint64_t digest_of_names() const;
  AuditRound::Digests compute(std::int64_t shard, bool digests_wanted = true);

  Strategy& strategy_;
  Options options_;
  Compute compute_;
  int rank_, ranks_;
  Shares shares_;

  // Of the next step, or the one under way.
  std::int64_t step_;                ///< from 0
  std::optional<AuditRound> round_;  ///< empty if it is not audited
  std::vector<std::string> names_;   ///< of what the first shard has yielded
  std::optional<AuditRound::Digests> own_;
};

}  // namespace lockstep
