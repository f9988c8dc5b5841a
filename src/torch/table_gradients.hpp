// The gradients of tables in one step, from autograd's to the sum over the ranks. They travel as the rows that a rank
// has touched, once autograd has left all of them, and beside the buckets of the other gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/order/shares.hpp"
#include "sync/step/rows.hpp"
#include "sync/step/synchronous_step.hpp"
#include "torch/replica.hpp"
#include "torch/sparse_rows.hpp"

namespace lockstep::libtorch {

/// Of one rank and step.
class TableGradients {
 public:
  TableGradients() = default;

  /// All ranks have the same tables. All arguments must outlive this object.
  TableGradients(std::vector<Parameter*> tables, const Strategy& strategy, TorchDevice& device);

  /// LOCAL. Takes the gradients of the rank's batch. The ranks' rows will be added up in the order of ranks.
  void take_batch();

  /// LOCAL. As many shards compute at the same time.
  void begin_shards(std::size_t count) { parts_.assign(count, std::vector<std::vector<at::Tensor>>(tables_.size())); }

  /// LOCAL, from any thread. Takes a part of the gradient of one of them out of `.grad`.
  void take_part(const Parameter& table, std::size_t shard);

  /// LOCAL, before the end of a shard: a digest of its rows, by table.
  std::vector<std::uint64_t> digests_of_shard(std::size_t shard) const;

  /// LOCAL. Forgets the parts of a shard that does not count.
  void forget_shard(std::size_t shard) {
    for (std::vector<at::Tensor>& each : parts_[shard]) each.clear();
  }

  /// LOCAL, in the order of shards. All ranks' rows are added up in one tree. Another shard may take the place of one
  /// that has ended. `end_subtree` comes after the last shard of each subtree, and then `end_shards` once. `shares`
  /// must outlive this object.
  void end_shard(std::size_t shard);
  void end_subtree();
  void end_shards(const Shares& shares) { shares_ = &shares; }

  /// LOCAL, when this rank's rows are complete.
  void pack();

  /// What the ranks must add up first: by table those with a dense gradient, and what it takes to exchange rows.
  std::vector<std::int64_t>& dense() { return dense_; }
  std::vector<std::int64_t>& counts() { return exchange_.counts(); }

  /// COLL. `.grad` of the tables is working memory from here on.
  void exchange(const RankSums& sums, Stream& stream);

  /// Whether a rank had a dense gradient, as of weights that a linear layer has too. Then the sum is dense.
  bool is_dense(std::size_t table) const { return dense_[table] > 0; }

  /// LOCAL, after the exchange. The sum divided by `divisor`, sparse or in the store.
  at::Tensor mean(std::size_t table, double divisor);

 private:
  int most_parts() const { return shares_ ? shares_->most_of_rank() : 1; }
  void sum_rows(const RankSums& sums);
  void sum_dense(const RankSums& sums, Stream& stream);
  IndexedSlices rows_of_shard(std::size_t shard, std::size_t table) const;

  std::vector<Parameter*> tables_;
  bool is_alone_ = true;
  TorchDevice* device_ = nullptr;

  std::vector<std::vector<std::vector<at::Tensor>>> parts_;  ///< of gradients, by shard and table
  std::vector<RowTree> shards_;                              ///< by table
  const Shares* shares_ = nullptr;                           ///< of rows that were added up in a tree
  std::vector<std::vector<IndexedSlices>> own_;              ///< of this rank: by subtree, or of the batch; by table
  std::vector<IndexedSlices> sums_;                          ///< by table, after the exchange
  std::vector<std::int64_t> dense_;
  RowExchange exchange_;
};

}  // namespace lockstep::libtorch
