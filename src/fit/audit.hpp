// Audits: in some steps each rank computes a shard of another rank too, and the ranks compare what they got.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/here.hpp>
#include <lockstep/nn/gradient_buffer.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/tensor/tensor.hpp>

#include "base/digest.hpp"
#include "fit/accumulation.hpp"
#include "fit/audit_schedule.hpp"
#include "fit/audit_verdict.hpp"
#include "fit/injected_fault.hpp"
#include "fit/rank_shards.hpp"
#include "nn/shard_watch.hpp"

namespace lockstep {

/// The audits of one rank. In an audited step the rank takes digests of what the shard of its own yields that another
/// rank computes as well (`ShardWatch`), and computes one of another rank. The digests travel in the
/// step's last sum, as integers that add up to 0 for each rank whose digest its auditor gets too, so an audit needs no
/// message of its own, and a step that does not pass is not applied.
class Audit final : public nn::ShardWatch {
 public:
  /// Everything must outlive it. `sum` has the layout of the gradients, and memory for statistics if the model has any.
  Audit(Strategy& strategy, nn::Model& model, const nn::GradientBuffer& sum, RankShards& shards, AuditSchedule schedule,
        const std::optional<InjectedFault>& fault);

  /// How many integers an audited step adds up.
  std::int64_t integers() const { return strategy_.num_replicas_in_sync(); }

  /// LOCAL. Begins the step, counted from 0. Returns whether it is audited.
  bool begin(std::int64_t step);

  /// LOCAL. The samples of shard number `shard` of this rank, one micro-batch after the other.
  void read(std::int64_t shard, const SampleBatch& samples);

  /// The loss of one more micro-batch of a shard, for `on_loss`.
  static void add(ops::Kernels::BatchLoss& total, const ops::Kernels::BatchLoss& own, const SampleBatch& micro_batch);

  bool wants(std::int64_t shard) const override;
  void on_gradient(std::int64_t shard, std::size_t variable, const TensorView& gradient) override;
  void on_statistics(std::int64_t shard, const TensorView& statistics) override;
  void on_loss(std::int64_t shard, const ops::Kernels::BatchLoss& loss) override;

  /// LOCAL, after this rank's own shards. Computes the shard of another rank, and writes this rank's part of the
  /// integers. `samples` are those of the whole step.
  void compute_other(std::span<const std::int64_t> samples, std::span<std::int64_t> integers);

  /// LOCAL. Whether the step passes, by the integers' sums over the ranks.
  bool passes(std::span<const std::int64_t> sums);

  /// COLL, in cross-replica context, after each step. If it was audited and did not pass, every rank throws: DriftError
  /// if the replicas differ in what they hold, which explains it, and otherwise AuditError. To tell who is wrong, every
  /// rank computes each shard in question once more.
  void require_passed(std::span<const std::int64_t> samples, const Here& here);

 private:
  /// Digests of the values of one shard.
  struct Record {
    void add_samples(const SampleBatch& batch);
    /// In the order of `names_`.
    AuditedShard::Digests values() const;

    Digest samples = {};
    std::vector<std::uint64_t> gradients = {};
    std::optional<std::uint64_t> statistics = {};  ///< empty if the model has none
    std::uint64_t loss = 0;
  };

  std::int64_t shard_of(int rank) const;
  int owner_audited_by(int rank) const;
  AuditedShard::Digests compute(std::int64_t shard, std::span<const std::int64_t> samples);
  void reserve();
  std::vector<AuditedShard> in_question(std::span<const std::int64_t> of_all) const;
  [[noreturn]] void throw_verdict(const Verdict& verdict, const Here& here);

  Strategy& strategy_;
  nn::Model& model_;
  const nn::GradientBuffer sum_;
  RankShards& shards_;
  AuditSchedule schedule_;
  const std::optional<InjectedFault>& fault_;
  int rank_, ranks_;
  std::vector<std::string> names_;

  std::int64_t step_ = 0;
  std::optional<AuditSchedule::Turn> turn_;  ///< of this step
  Record own_;
  AuditedShard::Digests of_other_;
  std::vector<int> differ_;  ///< the ranks whose shard its auditor computes otherwise

  // Memory for a shard that is not this rank's own, from the first audit on.
  Tensor gradients_, statistics_;
  std::optional<nn::GradientBuffer> buffer_;
  std::optional<Accumulation> accumulation_;  ///< empty if a shard is one micro-batch
};

}  // namespace lockstep
