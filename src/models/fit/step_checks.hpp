// What some steps do besides training: audits, and the digests that a ledger keeps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/here.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/order/shares.hpp"
#include "models/fit/audit.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/fit/shard_records.hpp"
#include "models/fit/step_faults.hpp"

namespace lockstep {

/// In a step that is audited or recorded, has a rank look at single shards (ShardRecords). What the ranks tell each
/// other of it travels as integers in the step's last sum: the audit's, and then the digests of all shards of a
/// recorded step, of which each rank brings those of its own shards and zeros.
class StepChecks {
 public:
  /// Everything must outlive it, but for the handle `sum`: the rank's, with its statistics. `takes_audited` says
  /// whether one call computes all shards of the rank, and may compute one of another rank with them.
  StepChecks(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards,
             const Shares& shares, const FitOptions& options, bool takes_audited, const StepFaults& faults);

  /// LOCAL. Begins a step, counted from 0.
  void begin(std::int64_t step);

  /// The shard of the batch that is to be computed beside this rank's own, to be audited; empty if none is.
  std::optional<std::int64_t> audited() const;

  /// Whether anything looks at single shards in this step.
  bool looks() const { return audits_ || records_step_; }

  /// What does; null if nothing. From now on, its shard 0 is number `first` of this rank.
  nn::ShardWatch* watch_from(std::int64_t first) {
    records_.begin_with(first);
    return looks() ? &records_ : nullptr;
  }

  /// LOCAL. A micro-batch of each shard from number `first` of this rank on.
  void read(std::int64_t first, const SampleBatch::Group& micro_batch);

  /// Of the step's last sum.
  std::int64_t integers() const;

  /// LOCAL, after this rank's shards. Writes its part of the integers. `samples` are those of the whole step.
  void bring(std::span<const std::int64_t> samples, std::span<std::int64_t> integers);

  /// LOCAL. Takes the sums of the integers. Returns whether the step may be applied.
  bool take(std::span<const std::int64_t> sums);

  /// COLL, after the step. Throws if its audit did not pass (Audit::judge).
  void require_passed(std::span<const std::int64_t> samples, const Here& here);

  /// LOCAL. If the step is recorded, tells `observer`. `step` is counted from 1.
  void tell(Observer& observer, std::int64_t step, double loss) const;

 private:
  std::size_t first_digest() const { return audits_ ? static_cast<std::size_t>(ranks_) : 0; }

  const FitOptions& options_;
  int rank_, ranks_;
  const Shares& shares_;
  bool takes_audited_;
  ShardRecords records_;
  std::optional<Audit> audit_;
  bool audits_ = false, records_step_ = false;  ///< this step
  bool passes_ = true;                          ///< the last step whose sums came
  std::vector<std::uint64_t> digests_;          ///< of all shards of a recorded step, one after the other
};

}  // namespace lockstep
