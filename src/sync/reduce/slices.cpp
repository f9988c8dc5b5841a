// Slices and gathered tensors: all ranks' rows, concatenated in rank order.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/comm/communicator.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/by_messages.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

std::int64_t rows_of(const IndexedSlices& slices) {
  return slices.indices.count();
}

std::int64_t rows_of(const Tensor& tensor) {
  return tensor.shape()[0];
}

Shape with_rows(const Tensor& tensor, std::int64_t rows) {
  Shape shape = tensor.shape();
  shape[0] = rows;
  return shape;
}

/// COLL. The number of rows that each rank has, as [rank][slices or tensor].
template <class T>
std::vector<std::vector<std::int64_t>> numbers_of_rows(Communicator& communicator, std::span<T> all) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto count = static_cast<std::int64_t>(all.size());
  std::vector<std::int64_t> mine(ranks * all.size());
  std::transform(all.begin(), all.end(), mine.begin() + static_cast<std::ptrdiff_t>(all.size()) * communicator.rank(),
                 [](const T& each) { return rows_of(each); });
  const Tensor table =
      Tensor::copy_of(Tensor::from(mine, {static_cast<std::int64_t>(ranks) * count}).view(), communicator.stream());
  std::vector<std::int64_t> bounds;
  for (int rank = 0; rank <= communicator.size(); ++rank) bounds.push_back(count * rank);
  communicator.all_gather(table.view(), bounds).wait();
  const auto numbers = table.to_vector<std::int64_t>();
  std::vector<std::vector<std::int64_t>> rows;
  for (auto first = numbers.begin(); first != numbers.end(); first += count) rows.emplace_back(first, first + count);
  return rows;
}

/// Where each rank's rows begin in the concatenation.
std::vector<std::int64_t> row_bounds(const std::vector<std::vector<std::int64_t>>& rows, std::size_t index) {
  std::vector<std::int64_t> bounds{0};
  for (const auto& of_rank : rows) bounds.push_back(bounds.back() + of_rank[index]);
  return bounds;
}

/// A tensor for all ranks' rows, with this rank's in place. `collect(flat, bounds)` brings the others.
template <class Collect>
Tensor concatenate(Communicator& communicator, const Tensor& mine, std::span<const std::int64_t> row_bounds,
                   Collect&& collect) {
  const Tensor whole = Tensor::uninitialised(mine.dtype(), with_rows(mine, row_bounds.back()), communicator.stream());
  const std::int64_t row = whole.count() / row_bounds.back();
  std::vector<std::int64_t> bounds;
  for (const std::int64_t bound : row_bounds) bounds.push_back(bound * row);
  const TensorView flat = whole.view().reshaped({whole.count()});
  copy(mine.view().reshaped({mine.count()}),
       flat.slice(bounds[static_cast<std::size_t>(communicator.rank())], mine.count()), communicator.stream());
  collect(flat, SliceBounds{bounds});
  return whole;
}

std::vector<Tensor*> parts_of(Tensor& tensor) {
  return {&tensor};
}
std::vector<Tensor*> parts_of(IndexedSlices& slices) {
  return {&slices.values, &slices.indices};
}

template <class T, class Collect>
void gather_rows(Communicator& communicator, std::span<T> all, Collect&& collect) {
  if (all.empty()) return;
  const auto rows = numbers_of_rows(communicator, all);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto bounds = row_bounds(rows, i);
    if (bounds.back() == 0) continue;  // no rank has rows, and every rank knows it
    for (Tensor* const part : parts_of(all[i])) *part = concatenate(communicator, *part, bounds, collect);
  }
}

void broadcast_rows(Communicator& communicator, std::span<IndexedSlices> slices, int root) {
  const auto rows = numbers_of_rows(communicator, slices)[static_cast<std::size_t>(root)];
  for (std::size_t i = 0; i < slices.size(); ++i) {
    IndexedSlices& each = slices[i];
    if (communicator.rank() != root) {
      each.values = Tensor::uninitialised(each.values.dtype(), with_rows(each.values, rows[i]), communicator.stream());
      each.indices = Tensor::uninitialised(DType::i64, {rows[i]}, communicator.stream());
    }
    if (rows[i] == 0) continue;
    communicator.broadcast(each.values.view(), root).wait();
    communicator.broadcast(each.indices.view(), root).wait();
  }
}

}  // namespace

void detail::exchange_rows(Communicator& communicator, const Request& request) {
  if (request.kind == Request::Kind::broadcast) return broadcast_rows(communicator, request.rows, request.root);
  const auto collect = [&](const TensorView& flat, SliceBounds bounds) {
    (request.kind == Request::Kind::reduce ? communicator.gather(flat, bounds, request.root)
                                           : communicator.all_gather(flat, bounds))
        .wait();
  };
  gather_rows(communicator, request.to_gather, collect);
  gather_rows(communicator, request.rows, collect);
  if (request.op != ReduceOp::mean || !request.reaches(communicator.rank())) return;
  for (const IndexedSlices& slices : request.rows)
    divide(slices.values.view(), communicator.size(), communicator.stream());
}

void require_reducible(ReduceOp op, const IndexedSlices& slices) {
  const TensorView values = slices.values.view();
  const TensorView indices = slices.indices.view();
  require_reducible(op, values.dtype());
  const auto same_behind_the_first = [&] {
    return std::equal(values.shape().begin() + 1, values.shape().end(), slices.dense_shape.begin() + 1,
                      slices.dense_shape.end());
  };
  if (indices.dtype() != DType::i64 || indices.shape().size() != 1 || values.shape().empty() ||
      slices.dense_shape.empty() || values.shape()[0] != indices.count() || !same_behind_the_first() ||
      values.device() != indices.device())
    throw InvalidArgument{fmt::format(
        "slices of values {} at indices {} of a dense {}: expected values [rows, …] and i64 indices [rows] on one "
        "device, and a dense shape [n, …] like the values'",
        describe(values), describe(indices), describe(slices.dense_shape))};
  if (indices.device() != DeviceKind::cpu) return;
  for (const std::int64_t index : indices.elements<std::int64_t>())
    if (index < 0 || index >= slices.dense_shape[0])
      throw InvalidArgument{fmt::format("index {} is not a row of a dense {}", index, describe(slices.dense_shape))};
}

}  // namespace lockstep
