// Audits: in some steps each rank computes a shard of another rank too, and the ranks compare what they got.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/fit/accumulation.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_records.hpp"
#include "models/fit/step_faults.hpp"
#include "sync/strategy/audit_round.hpp"
#include "sync/strategy/audit_schedule.hpp"

namespace lockstep {

/// The audits of one rank. In an audited step the rank keeps digests of the shard of its own that another rank computes
/// as well, and computes one of another rank. The digests travel in the step's last sum (AuditRound), so an audit needs
/// no message of its own, and a step that does not pass is not applied.
class Audit {
 public:
  /// Everything must outlive it. `sum` has the layout of the gradients, and memory for statistics if the model has any.
  /// `records` are those of this rank's own shards.
  Audit(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards, const Shares& shares,
        const ShardRecords& records, AuditSchedule schedule, const StepFaults& faults);

  /// LOCAL. Begins the step, counted from 0. Which of this rank's shards is audited in it; empty if none is.
  std::optional<std::int64_t> begin(std::int64_t step);

  /// Of an audited step: the shard of another rank that this rank computes too, by its number in the batch.
  std::int64_t other() const { return round_->other(); }

  /// LOCAL, after this rank's own shards. Computes the shard of another rank, unless that came with them, and writes
  /// this rank's part of the integers, of which there is one for each rank. `samples` are those of the whole step.
  void compare(std::span<const std::int64_t> samples, std::span<std::int64_t> integers);

  /// LOCAL. Whether the step passes, by the integers' sums over the ranks.
  bool passes(std::span<const std::int64_t> sums) {
    std::ranges::copy(sums, round_->integers().begin());
    return round_->passes();
  }

  /// COLL, in cross-replica context, after an audited step that did not pass. Every rank throws: DriftError if the
  /// replicas differ in what they hold, which explains it, and otherwise AuditError (AuditRound::judge).
  [[noreturn]] void judge(std::span<const std::int64_t> samples, const Here& here);

 private:
  AuditedShard::Digests compute(std::int64_t shard, std::span<const std::int64_t> samples);
  void reserve();

  Strategy& strategy_;
  nn::Model& model_;
  const nn::GradientBuffer sum_;
  RankShards& shards_;
  const Shares& shares_;
  const ShardRecords& records_;
  AuditSchedule schedule_;
  const StepFaults& faults_;

  std::int64_t step_ = 0;
  std::int64_t audited_ = 0;         ///< of this rank's shards
  std::optional<AuditRound> round_;  ///< of this step

  // Memory for a shard that is not this rank's own, from the first audit on.
  std::optional<ShardBuffers> buffer_;
  std::optional<Accumulation> accumulation_;  ///< empty if a shard is one micro-batch
};

}  // namespace lockstep
