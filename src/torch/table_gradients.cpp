#include "torch/table_gradients.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/digest.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep::libtorch {
namespace {

void write_to(const IndexedSlices& rows, at::Tensor home) {
  home.zero_();
  if (rows.indices.count() == 0) return;
  const at::Tensor sparse = sparse_gradient(rows, home);
  home.index_copy_(0, sparse._indices().select(0, 0), sparse._values());
}

}  // namespace

TableGradients::TableGradients(std::vector<Parameter*> tables, const Strategy& strategy, TorchDevice& device)
    : tables_{std::move(tables)},
      is_alone_{strategy.num_replicas_in_sync() == 1},
      device_{&device},
      shards_(tables_.size()),
      dense_(tables_.size()) {
  for (const Parameter* const table : tables_) rows_.push_back(no_rows_of(table->tensor));
  if (!tables_.empty()) exchange_ = {strategy.rank(), strategy.num_replicas_in_sync()};
}

void TableGradients::take_batch() {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const at::Tensor& gradient = tables_[i]->tensor.grad();
    if (!tables_[i]->if_kept.has || !gradient.defined()) continue;
    if (!gradient.is_sparse()) dense_[i] = 1;
    rows_[i] = rows_of(gradient, *device_);
  }
}

void TableGradients::take_part(const Parameter& table, std::size_t shard) {
  const auto number = static_cast<std::size_t>(std::ranges::find(tables_, &table) - tables_.begin());
  parts_[shard][number].push_back(std::exchange(table.tensor.mutable_grad(), at::Tensor{}));
}

IndexedSlices TableGradients::rows_of_shard(std::size_t shard, std::size_t table) const {
  std::vector<IndexedSlices> parts{no_rows_of(tables_[table]->tensor)};
  for (const at::Tensor& part : parts_[shard][table]) parts.push_back(rows_of(part, *device_));
  return parts.size() == 2 ? std::move(parts.back()) : lockstep::sum_rows(parts);
}

void TableGradients::end_shard(std::size_t shard) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    std::vector<at::Tensor>& parts = parts_[shard][i];
    if (std::ranges::any_of(parts, [](const at::Tensor& part) { return !part.is_sparse(); })) dense_[i] = 1;
    shards_[i].push(rows_of_shard(shard, i));
    parts.clear();
  }
}

std::vector<std::uint64_t> TableGradients::digests_of_shard(std::size_t shard) const {
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const IndexedSlices rows = rows_of_shard(shard, i);
    Digest digest;
    for (const TensorView& part : {rows.indices.view(), rows.values.view()}) digest.update({part.data(), part.bytes()});
    digests.push_back(digest.value());
  }
  return digests;
}

void TableGradients::end_shards(const Shares& shares) {
  shares_ = shares;
  for (std::size_t i = 0; i < tables_.size(); ++i) rows_[i] = shards_[i].finish();
}

// Rows that travel in vain, since another rank's gradient turns out to be dense, are those of one step.
void TableGradients::pack() {
  if (tables_.empty() || is_alone_) return;
  std::vector<IndexedSlices> travelling;
  std::vector<DType> types;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    travelling.push_back(is_dense(i) ? no_rows_of(tables_[i]->tensor) : rows_[i]);
    types.push_back(tables_[i]->variable.dtype());
  }
  exchange_.pack(std::move(travelling), types);
}

void TableGradients::exchange(const RankSums& sums, Stream& stream) {
  const at::NoGradGuard plain;
  if (tables_.empty() || is_alone_) return;
  sum_rows(sums);
  sum_dense(sums, stream);
}

void TableGradients::sum_rows(const RankSums& sums) {
  std::vector<std::vector<IndexedSlices>> all = exchange_.exchange(sums);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (is_dense(i)) continue;
    if (shares_) {
      for (int rank = 0; rank < shares_->ranks(); ++rank)
        shards_[i].push(std::move(all[i][static_cast<std::size_t>(rank)]), shares_->of(rank).size());
      rows_[i] = shards_[i].finish();
    } else {
      rows_[i] = lockstep::sum_rows(all[i]);
    }
  }
}

void TableGradients::sum_dense(const RankSums& sums, Stream& stream) {
  std::vector<TensorView> homes;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (!is_dense(i)) continue;
    write_to(rows_[i], tables_[i]->gradient);
    homes.push_back(view_of(tables_[i]->gradient, stream.kind()));
  }
  if (homes.empty()) return;
  device_->stream_follows();
  sums.make([&](Reductions& reductions) {
    reductions.all_reduce(ReduceOp::sum, homes);
    stream.synchronize();
  });
}

at::Tensor TableGradients::mean(std::size_t table, double divisor) {
  const at::NoGradGuard plain;
  at::Tensor& home = tables_[table]->gradient;
  if (!is_dense(table)) {
    at::Tensor values = values_of(rows_[table]);
    divide(values, divisor);
    return sparse_gradient(rows_[table], tables_[table]->tensor);
  }
  if (is_alone_) write_to(rows_[table], home);
  // Whether a row of -0 meets a row of zeros depends on who has which shards.
  home.add_(0);
  divide(home, divisor);
  return home;
}

}  // namespace lockstep::libtorch
