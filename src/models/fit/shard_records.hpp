// Digests of what single shards read and yield.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/nn/gradient_buffer.hpp>

#include "core/base/digest.hpp"
#include "models/fit/step_faults.hpp"
#include "models/nn/shard_watch.hpp"

namespace lockstep {

/// Digests of one shard: of its samples, of the gradient of each variable, of its statistics if the model has any, and
/// of its loss. They depend neither on the rank that computes the shard nor on the number of ranks.
class ShardRecord {
 public:
  /// What `values` are of, in their order: "samples", "gradient of 'w'", "statistics", "loss".
  static std::vector<std::string> names(const nn::GradientBuffer& buffer);

  explicit ShardRecord(std::size_t variables = 0) : gradients_(variables) {}

  /// One micro-batch after the other.
  void add_samples(const SampleBatch& batch);
  /// All of it, or one part after the other.
  void add_gradient(std::size_t variable, const TensorView& part);
  void set_statistics(const TensorView& statistics);
  /// It must say its weight. If it is not finite, that is all that the values say besides the samples.
  void set_loss(const ops::Kernels::BatchLoss& loss);

  std::vector<std::uint64_t> values() const;

 private:
  Digest samples_;
  std::vector<WideDigest> gradients_;
  std::optional<std::uint64_t> statistics_;
  std::uint64_t loss_ = 0;
  bool is_finite_ = true;
};

/// The records of this rank's shards, and of an audited one behind them, in one step after the other. Shards are
/// numbered from 0 on this rank.
class ShardRecords final : public nn::ShardWatch {
 public:
  /// For so many shards of this rank, with gradients laid out as in `sum`. `faults` must outlive it.
  ShardRecords(const nn::GradientBuffer& sum, std::int64_t shards, const StepFaults& faults);

  const std::vector<std::string>& names() const { return names_; }

  /// Begins a step, of which the records of the shards in `kept` are wanted, and that of an audited one if there is
  /// one.
  void begin(Range kept, bool has_audited);
  void read(std::int64_t shard, const SampleBatch& micro_batch);

  /// The calls that follow number shards from this one on.
  void begin_with(std::int64_t first) { first_ = first; }

  std::int64_t audited() const override { return has_audited_ ? 1 : 0; }
  bool wants(std::int64_t shard) const override;
  bool takes_parts(std::int64_t shard) const override;
  void on_gradient(std::int64_t shard, std::size_t variable, const TensorView& part) override;
  void on_statistics(std::int64_t shard, const TensorView& statistics) override;
  void on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) override;

  /// Of a shard that is kept.
  std::vector<std::uint64_t> of(std::int64_t shard) const { return records_[static_cast<std::size_t>(shard)].values(); }
  std::vector<std::uint64_t> of_audited() const { return of(shards_); }

 private:
  bool keeps(std::int64_t shard) const { return (kept_.first <= shard && shard < kept_.last) || shard == shards_; }
  bool is_spoilt(std::int64_t shard) const;

  std::size_t variables_;
  std::int64_t shards_;
  const StepFaults& faults_;
  std::vector<std::string> names_;
  Range kept_{};
  std::int64_t first_ = 0;
  bool has_audited_ = false;
  std::vector<ShardRecord> records_;
};

}  // namespace lockstep
