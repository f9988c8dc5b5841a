// Slices among ranks that are threads: every rank has other rows, and another number of them.
#include <cstdint>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using lockstep::test::on_threads;
using lockstep::test::ThreadCommunicator;

namespace {

/// Rank r has r rows of two values, (10 r, 10 r + 1) first, at the rows r, r + 1, … modulo 5 of a dense [5, 2].
IndexedSlices slices_of(int rank) {
  std::vector<float> values(static_cast<std::size_t>(2 * rank));
  std::iota(values.begin(), values.end(), 10.f * static_cast<float>(rank));
  std::vector<std::int64_t> indices;
  for (int row = 0; row < rank; ++row) indices.push_back((rank + row) % 5);
  return {Tensor::from(values, {rank, 2}), Tensor::from(indices, {rank}), {5, 2}};
}

struct Rows {
  std::vector<float> values;
  std::vector<std::int64_t> indices;
  friend bool operator==(const Rows&, const Rows&) = default;
};

Rows rows_of(const IndexedSlices& slices) {
  return {slices.values.to_vector<float>(), slices.indices.to_vector<std::int64_t>()};
}

Rows all_rows(int ranks, float divisor = 1) {
  Rows all;
  for (int rank = 0; rank < ranks; ++rank) {
    const Rows rows = rows_of(slices_of(rank));
    for (const float value : rows.values) all.values.push_back(value / divisor);
    all.indices.insert(all.indices.end(), rows.indices.begin(), rows.indices.end());
  }
  return all;
}

/// What each rank has after `operation` on its slices, and on none beside them.
template <class Operation>
std::vector<IndexedSlices> after(int ranks, Operation&& operation) {
  std::vector<IndexedSlices> results(static_cast<std::size_t>(ranks));
  on_threads(ranks, [&](ThreadCommunicator& communicator) {
    const auto ops = test::in_fixed_order(communicator);
    std::vector<IndexedSlices> mine{slices_of(communicator.rank())};
    operation(*ops, std::span{mine});
    results[static_cast<std::size_t>(communicator.rank())] = mine[0];
  });
  return results;
}

}  // namespace

TEST_CASE("a sum of slices is all rows in rank order, duplicates kept, on every rank", "[E-25]") {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto results =
        after(ranks, [](Reductions& ops, std::span<IndexedSlices> slices) { ops.all_reduce(ReduceOp::sum, slices); });
    for (const IndexedSlices& result : results) {
      CHECK(rows_of(result) == all_rows(ranks));
      CHECK(result.values.shape() == Shape{ranks * (ranks - 1) / 2, 2});
      CHECK(result.dense_shape == Shape{5, 2});
    }
  }
}

TEST_CASE("a mean of slices divides their values", "[E-25]") {
  const auto results =
      after(4, [](Reductions& ops, std::span<IndexedSlices> slices) { ops.all_reduce(ReduceOp::mean, slices); });
  for (const IndexedSlices& result : results) CHECK(rows_of(result) == all_rows(4, 4));
}

TEST_CASE("slices reduced to one rank arrive there") {
  for (int root = 0; root < 3; ++root) {
    const auto results = after(
        3, [&](Reductions& ops, std::span<IndexedSlices> slices) { ops.reduce_to_one(ReduceOp::mean, slices, root); });
    CHECK(rows_of(results[static_cast<std::size_t>(root)]) == all_rows(3, 3));
  }
}

TEST_CASE("a broadcast replaces everyone's slices, however many rows they had") {
  for (int root = 0; root < 3; ++root) {
    const auto results =
        after(3, [&](Reductions& ops, std::span<IndexedSlices> slices) { ops.broadcast(slices, root); });
    for (const IndexedSlices& result : results) CHECK(rows_of(result) == rows_of(slices_of(root)));
  }
}

TEST_CASE("slices of several tensors at once, some without a row on any rank") {
  on_threads(3, [&](ThreadCommunicator& communicator) {
    const auto ops = test::in_backend_order(communicator);
    const IndexedSlices none{Tensor::zeros(DType::f64, {0, 3}), Tensor::zeros(DType::i64, {0}), {7, 3}};
    std::vector<IndexedSlices> mine{none, slices_of(communicator.rank()), slices_of(2 - communicator.rank())};
    ops->all_reduce(ReduceOp::mean, mine);
    const bool right = mine[0].values.shape() == Shape{0, 3} && rows_of(mine[1]) == all_rows(3, 3) &&
                       mine[2].indices.count() == 3 && mine[2].indices.to_vector<std::int64_t>()[0] == 2;
    if (!right) throw std::runtime_error{"other rows"};
  });
}

TEST_CASE("slices whose parts do not fit are refused, and so is what has no mean") {
  const Tensor values = Tensor::zeros(DType::f32, {2, 3});
  const Tensor indices = Tensor::from({std::int64_t{0}, std::int64_t{4}}, {2});
  CHECK_NOTHROW(require_reducible(ReduceOp::mean, IndexedSlices{values, indices, {5, 3}}));
  const std::vector<IndexedSlices> wrong{{values, indices, {5, 4}},
                                         {values, indices, {5}},
                                         {values, indices, {}},
                                         {values, indices, {4, 3}},  // row 4 is beyond it
                                         {values, Tensor::from({std::int64_t{0}}, {1}), {5, 3}},
                                         {values, Tensor::from({0, 4}, {2}), {5, 3}},
                                         {values, Tensor::from({std::int64_t{0}, std::int64_t{4}}, {2, 1}), {5, 3}},
                                         {values, Tensor::from({std::int64_t{0}, std::int64_t{-1}}, {2}), {5, 3}},
                                         {Tensor::scalar(1.f), indices, {5, 3}}};
  for (const IndexedSlices& each : wrong) CHECK_THROWS_AS(require_reducible(ReduceOp::sum, each), InvalidArgument);
  CHECK_THROWS_WITH(require_reducible(ReduceOp::sum, wrong[3]), "index 4 is not a row of a dense [4, 3]");
  const IndexedSlices integers{Tensor::zeros(DType::i32, {2, 3}), indices, {5, 3}};
  CHECK_NOTHROW(require_reducible(ReduceOp::sum, integers));
  CHECK_THROWS_AS(require_reducible(ReduceOp::mean, integers), InvalidArgument);
}
