// Which rows of which batch are whose.
#include <limits>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/order/input_context.hpp>

#include "core/order/row_sequence.hpp"
#include "core/order/sample_order.hpp"

using namespace lockstep;
using Catch::Contains;

namespace {

using Rows = std::vector<std::int64_t>;

/// The pieces of all replicas.
std::vector<Range> pieces(std::int64_t rows, std::int64_t global_batch_size, int replicas) {
  std::vector<Range> all;
  for (int id = 0; id < replicas; ++id)
    all.push_back(InputContext{replicas, id, replicas}.piece_of_batch(rows, global_batch_size));
  return all;
}

}  // namespace

TEST_CASE("replicas take consecutive pieces of equal size", "[F-7]") {
  CHECK(pieces(12, 12, 3) == std::vector<Range>{{0, 4}, {4, 8}, {8, 12}});
  CHECK(pieces(12, 12, 1) == std::vector<Range>{{0, 12}});
}

TEST_CASE("of a smaller batch the first replicas take whole pieces, one what is left, and others nothing", "[F-10]") {
  CHECK(pieces(8, 32, 4) == std::vector<Range>{{0, 8}, {8, 8}, {8, 8}, {8, 8}});
  CHECK(pieces(11, 32, 4) == std::vector<Range>{{0, 8}, {8, 11}, {11, 11}, {11, 11}});
  CHECK(pieces(0, 4, 2) == std::vector<Range>{{0, 0}, {0, 0}});
}

TEST_CASE("a batch with more rows than the global batch, or that the replicas do not divide, is refused", "[F-8]") {
  CHECK_THROWS_AS(pieces(5, 4, 2), InvalidArgument);
  CHECK_THROWS_WITH(pieces(5, 4, 2), "a batch of 5 rows; expected 0 to 4 (`global_batch_size`)");
  CHECK_THROWS_AS(pieces(-1, 4, 2), InvalidArgument);
  CHECK_THROWS_WITH(pieces(5, 5, 2), Contains("is not divisible by `num_replicas_in_sync` 2"));
}

TEST_CASE("a sequence of rows goes through its epochs, in order or shuffled") {
  RowSequence in_order{3, 2, std::nullopt};
  CHECK(in_order.length() == 6);
  CHECK(in_order.rows_at({0, 6}) == Rows{0, 1, 2, 0, 1, 2});
  CHECK(in_order.rows_at({2, 4}) == Rows{2, 0});
  CHECK(in_order.rows_at({6, 6}).empty());

  RowSequence shuffled{5, 3, 9};
  Rows expected;
  for (const std::int64_t epoch : {0, 1, 2})
    for (const std::int64_t row : sample_order(5, 9, epoch)) expected.push_back(row);
  CHECK(shuffled.rows_at({0, 15}) == expected);
  CHECK(shuffled.rows_at({3, 7}) == Rows(expected.begin() + 3, expected.begin() + 7));  // back to an earlier epoch
}

TEST_CASE("a sequence of rows without a number of epochs does not end") {
  RowSequence sequence{3, std::nullopt, std::nullopt};
  CHECK_FALSE(sequence.length());
  const std::int64_t far = std::int64_t{3} << 60;
  CHECK(sequence.within({far, far + 4}) == Range{far, far + 4});
  CHECK(sequence.rows_at({far, far + 4}) == Rows{0, 1, 2, 0});
}

TEST_CASE("positions beyond the end of a sequence are cut off, and there are no rows at them") {
  RowSequence sequence{3, 1, std::nullopt};
  CHECK(sequence.within({2, 5}) == Range{2, 3});
  CHECK(sequence.within({4, 6}) == Range{3, 3});
  for (const Range positions : {Range{2, 4}, Range{-1, 1}, Range{2, 1}})
    CHECK_THROWS_AS(sequence.rows_at(positions), InvalidArgument);
}

TEST_CASE("a sequence without rows or epochs, or with more positions than can be counted, is refused") {
  CHECK_THROWS_WITH(RowSequence(0, 1, std::nullopt), "arrays of 0 rows; expected 1 or more");
  CHECK_THROWS_WITH(RowSequence(1, 0, std::nullopt), Contains("`num_epochs` is 0; expected 1 to "));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(RowSequence(2, most / 2 + 1, std::nullopt), InvalidArgument);
  CHECK(RowSequence(2, most / 2, std::nullopt).length() == most - 1);
}
