#include "torch/table_gradients.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/digest.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep::libtorch {
namespace {

/// The elements of contiguous tensors on the host.
std::vector<TensorView> views_of(const std::vector<at::Tensor>& tensors) {
  std::vector<TensorView> views;
  for (const at::Tensor& each : tensors) views.push_back(view_of(each.flatten()));
  return views;
}

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
  if (!tables_.empty()) exchange_ = {strategy.rank(), strategy.num_replicas_in_sync()};
}

void TableGradients::take_batch() {
  std::vector<IndexedSlices>& rows = own_.emplace_back();
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const at::Tensor& gradient = tables_[i]->tensor.grad();
    const bool has = tables_[i]->if_kept.has && gradient.defined();
    if (has && !gradient.is_sparse()) dense_[i] = 1;
    rows.push_back(has ? rows_of(gradient, *device_) : no_rows_of(tables_[i]->tensor));
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

void TableGradients::end_subtree() {
  std::vector<IndexedSlices>& rows = own_.emplace_back();
  for (RowTree& each : shards_) rows.push_back(each.finish());
}

// Rows that travel in vain, since another rank's gradient turns out to be dense, are those of one step.
void TableGradients::pack() {
  if (tables_.empty() || is_alone_) return;
  std::vector<IndexedSlices> travelling;
  std::vector<DType> types;
  for (std::size_t part = 0; part < static_cast<std::size_t>(most_parts()); ++part)
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      const bool travels = part < own_.size() && !is_dense(i);
      travelling.push_back(travels ? own_[part][i] : no_rows_of(tables_[i]->tensor));
      types.push_back(tables_[i]->variable.dtype());
    }
  exchange_.pack(std::move(travelling), types);
}

void TableGradients::exchange(const RankSums& sums, Stream& stream) {
  const at::NoGradGuard plain;
  if (tables_.empty()) return;
  if (is_alone_) {
    sums_ = std::move(own_.front());
    return;
  }
  sum_rows(sums);
  sum_dense(sums, stream);
}

void TableGradients::sum_rows(const RankSums& sums) {
  std::vector<std::vector<IndexedSlices>> all = exchange_.exchange(sums);
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (!shares_) {
      sums_.push_back(lockstep::sum_rows(all[i]));
      continue;
    }
    for (int rank = 0; rank < shares_->ranks(); ++rank) {
      std::size_t place = i;
      for (const Range& subtree : shares_->subtrees_of(rank)) {
        shards_[i].push(std::move(all[place][static_cast<std::size_t>(rank)]), subtree.size());
        place += tables_.size();
      }
    }
    sums_.push_back(shards_[i].finish());
  }
}

void TableGradients::sum_dense(const RankSums& sums, Stream& stream) {
  std::vector<TensorView> homes;
  std::vector<std::vector<at::Tensor>> others;  // of this rank's subtrees before the last
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    if (!is_dense(i)) continue;
    others.emplace_back();
    for (const std::vector<IndexedSlices>& part : std::span{own_}.first(own_.size() - 1))
      write_to(part[i], others.back().emplace_back(at::empty_like(tables_[i]->gradient)));
    write_to(own_.back()[i], tables_[i]->gradient);
    homes.push_back(view_of(tables_[i]->gradient.flatten(), stream.kind()));
  }
  if (homes.empty()) return;
  device_->stream_follows();
  sums.make([&](Reductions& reductions) {
    if (most_parts() == 1) {
      reductions.all_reduce(ReduceOp::sum, homes);
    } else {
      for (std::size_t i = 0; i < homes.size(); ++i) reductions.sum_up(homes[i], views_of(others[i]));
    }
    stream.synchronize();
  });
}

at::Tensor TableGradients::mean(std::size_t table, double divisor) {
  const at::NoGradGuard plain;
  at::Tensor& home = tables_[table]->gradient;
  if (!is_dense(table)) {
    at::Tensor values = values_of(sums_[table]);
    divide(values, divisor);
    return sparse_gradient(sums_[table], tables_[table]->tensor);
  }
  if (is_alone_) write_to(sums_[table], home);
  // Whether a row of -0 meets a row of zeros depends on who has which shards.
  home.add_(0);
  divide(home, divisor);
  return home;
}

}  // namespace lockstep::libtorch
