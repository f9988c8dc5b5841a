#include "torch/table_gradients.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "base/digest.hpp"
#include "reduce/cross_device_ops.hpp"

namespace lockstep::libtorch {
namespace {

/// All ranks' messages together must stay below 2^31 bytes.
constexpr std::int64_t gathered_bytes = 1 << 30;

void write_to(const Rows& rows, at::Tensor home) {
  home.zero_();
  if (rows.indices.empty()) return;
  const at::Tensor sparse = sparse_gradient(rows, home);
  home.index_copy_(0, sparse._indices().select(0, 0), sparse._values());
}

}  // namespace

TableGradients::TableGradients(std::vector<Parameter*> tables, std::size_t rank, std::size_t ranks, TorchDevice& device)
    : tables_{std::move(tables)},
      rank_{rank},
      ranks_{ranks},
      device_{&device},
      shards_(tables_.size()),
      rows_(tables_.size()) {
  if (!tables_.empty()) totals_.resize(tables_.size() + ranks_);
}

void TableGradients::take_batch() {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const at::Tensor& gradient = tables_[i]->tensor.grad();
    if (!tables_[i]->if_kept.has || !gradient.defined()) continue;
    if (!gradient.is_sparse()) totals_[i] = 1;
    rows_[i] = rows_of(gradient, *device_);
  }
}

void TableGradients::begin_shards(std::size_t count) {
  parts_.assign(count, std::vector<std::vector<at::Tensor>>(tables_.size()));
}

void TableGradients::take_part(const Parameter& table, std::size_t shard) {
  parts_[shard][number_of(table)].push_back(std::exchange(table.tensor.mutable_grad(), at::Tensor{}));
}

Rows TableGradients::rows_of_shard(std::size_t shard, std::size_t table) const {
  std::vector<Rows> parts{no_rows_of(tables_[table]->tensor)};
  for (const at::Tensor& part : parts_[shard][table]) parts.push_back(rows_of(part, *device_));
  return parts.size() == 2 ? std::move(parts.back()) : sum_in_order(parts);
}

void TableGradients::end_shard(std::size_t shard) {
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    std::vector<at::Tensor>& parts = parts_[shard][i];
    if (std::ranges::any_of(parts, [](const at::Tensor& part) { return !part.is_sparse(); })) totals_[i] = 1;
    shards_[i].push(rows_of_shard(shard, i));
    parts.clear();
  }
}

std::vector<std::uint64_t> TableGradients::digests_of_shard(std::size_t shard) const {
  std::vector<std::uint64_t> digests;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const Rows rows = rows_of_shard(shard, i);
    Digest digest;
    digest.update(std::as_bytes(std::span{rows.indices}));
    digest.update({static_cast<const std::byte*>(rows.values.data_ptr()), rows.values.nbytes()});
    digests.push_back(digest.value());
  }
  return digests;
}

void TableGradients::forget_shard(std::size_t shard) {
  for (std::vector<at::Tensor>& each : parts_[shard]) each.clear();
}

void TableGradients::end_shards() {
  is_tree_ = true;
  for (std::size_t i = 0; i < tables_.size(); ++i) rows_[i] = shards_[i].finish();
}

// Rows that travel in vain, since another rank's gradient turns out to be dense, are those of one step.
void TableGradients::pack() {
  if (tables_.empty() || ranks_ == 1) return;
  std::vector<Rows> travelling;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (!rows_[i]) rows_[i] = no_rows_of(tables_[i]->tensor);
    travelling.push_back(is_dense(i) ? no_rows_of(tables_[i]->tensor) : *rows_[i]);
  }
  message_.emplace(travelling, values());
  totals_[tables_.size() + rank_] = message_->bytes();
}

void TableGradients::exchange(const RankSums& sums, Stream& stream) {
  const at::NoGradGuard plain;
  if (tables_.empty() || ranks_ == 1) return;
  sum_rows(sums);
  sum_dense(sums, stream);
}

void TableGradients::sum_rows(const RankSums& sums) {
  const std::span bytes{totals_.begin() + std::ssize(tables_), totals_.end()};
  const auto empty = static_cast<std::int64_t>(tables_.size() * sizeof(std::int64_t));
  if (std::ranges::all_of(bytes, [&](std::int64_t each) { return each == empty; })) return;
  std::vector<std::vector<Rows>> all;
  const std::vector<at::Tensor> tables = values();
  sums.make([&](CrossDeviceOps& reductions) {
    all = message_->gather(reductions, tables, bytes, gathered_bytes / static_cast<std::int64_t>(ranks_));
  });
  message_.reset();
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (is_dense(i)) continue;
    if (is_tree_) {
      for (Rows& each : all[i]) shards_[i].push(std::move(each));
      rows_[i] = shards_[i].finish();
    } else {
      rows_[i] = sum_in_order(all[i]);
    }
  }
}

void TableGradients::sum_dense(const RankSums& sums, Stream& stream) {
  std::vector<TensorView> homes;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (!is_dense(i)) continue;
    write_to(*rows_[i], tables_[i]->gradient);
    homes.push_back(view_of(tables_[i]->gradient, stream.kind()));
  }
  if (homes.empty()) return;
  device_->stream_follows();
  sums.make([&](CrossDeviceOps& reductions) {
    reductions.all_reduce(ReduceOp::sum, homes);
    stream.synchronize();
  });
}

at::Tensor TableGradients::mean(std::size_t table, double divisor) {
  const at::NoGradGuard plain;
  at::Tensor& home = tables_[table]->gradient;
  if (!is_dense(table)) {
    divide(rows_[table]->values, divisor);
    return sparse_gradient(*rows_[table], tables_[table]->tensor);
  }
  if (ranks_ == 1) write_to(*rows_[table], home);
  // Whether a row of -0 meets a row of zeros depends on who has which shards.
  home.add_(0);
  divide(home, divisor);
  return home;
}

std::vector<at::Tensor> TableGradients::values() const {
  std::vector<at::Tensor> tensors;
  for (const Parameter* const table : tables_) tensors.push_back(table->tensor);
  return tensors;
}

std::size_t TableGradients::number_of(const Parameter& table) const {
  return static_cast<std::size_t>(std::ranges::find(tables_, &table) - tables_.begin());
}

}  // namespace lockstep::libtorch
