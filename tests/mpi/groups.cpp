// Groups of some of the ranks, which overlap and have an order of their own.
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

Group everyone() {
  return runtime().strategy().ranks();
}

/// The ranks before `end`, the last first.
std::vector<int> down_from(int end) {
  std::vector<int> ranks(static_cast<std::size_t>(end));
  std::iota(ranks.rbegin(), ranks.rend(), 0);
  return ranks;
}

int bits_of(Group group) {
  int bits[] = {1 << rank()};
  group.all_reduce(std::span{bits});
  return bits[0];
}

}  // namespace

TEST_CASE("overlapping groups work with their own ranks, in an order of their own") {
  Group all = everyone().subset(down_from(ranks()));
  std::optional<Group> rest;
  std::vector<int> others(static_cast<std::size_t>(last()));
  std::iota(others.begin(), others.end(), 1);  // all but the first of `all`, which is the last rank
  if (!odd_one()) rest = all.subset(others);
  CHECK(all.rank() == last() - rank());
  for (int round = 0; round < 3; ++round) {
    if (rest) CHECK(rest->rank() == last() - 1 - rank());
    if (rest) CHECK(bits_of(*rest) == (1 << last()) - 1);
    CHECK(bits_of(all) == (1 << ranks()) - 1);
    CHECK(bits_of(everyone()) == (1 << ranks()) - 1);
  }
}

TEST_CASE("a group sums, broadcasts and gathers values of the host, in its own order") {
  Group group = everyone().subset(down_from(ranks()));
  std::vector<double> values{static_cast<double>(rank()), 0.5};
  group.all_reduce(std::span{values});
  CHECK(values == std::vector<double>{static_cast<double>(triangle() - ranks()), 0.5 * ranks()});

  std::vector<std::int64_t> numbers{rank(), 7};
  group.broadcast(std::span{numbers}, 0);
  CHECK(numbers == std::vector<std::int64_t>{last(), 7});

  const std::vector<float> mine(static_cast<std::size_t>(rank()), static_cast<float>(rank()));
  std::vector<float> expected;
  for (int from = last(); from >= 0; --from) expected.insert(expected.end(), from, static_cast<float>(from));
  CHECK(group.all_gather(std::span{mine}) == expected);
}

TEST_CASE("overlapping groups sum tensors of their ranks' devices, in one order on all ranks") {
  Stream& stream = runtime().strategy().stream();
  const auto on_device = [&] {
    return Tensor::copy_of(Tensor::from<std::int64_t>({1 << rank(), 1}, {2}).view(), stream);
  };
  Group all = everyone();
  Group back = all.subset(down_from(ranks()));
  std::optional<Group> rest;
  if (!odd_one()) rest = all.subset(down_from(last()));
  for (int round = 0; round < 2; ++round) {
    const Tensor of_all = on_device(), of_back = on_device(), of_rest = on_device();
    back.all_reduce(of_back.view());
    if (rest) rest->all_reduce(of_rest.view());
    all.all_reduce(of_all.view());
    if (rest) rest->broadcast(of_back.view(), last() - 1);
    const std::vector<std::int64_t> sum{(1 << ranks()) - 1, ranks()}, without_last{(1 << last()) - 1, last()};
    CHECK(of_all.to_vector<std::int64_t>() == sum);
    CHECK(of_back.to_vector<std::int64_t>() == sum);
    if (rest) CHECK(of_rest.to_vector<std::int64_t>() == without_last);
  }
}

TEST_CASE("a strategy on some of the ranks has variables and runs of its own, and holds its group") {
  if (odd_one() && ranks() > 1) return;
  const int count = ranks() > 1 ? last() : 1;
  Strategy strategy{everyone().subset(down_from(count))};
  const MirroredVariable weight = strategy.create_variable({.name = "weight"}, [] {
    return Tensor::from(std::vector<float>{static_cast<float>(rank()), 1}, {2});
  });
  strategy.seal();
  // From the group's first rank.
  CHECK(weight.local().to_vector<float>() == std::vector<float>{static_cast<float>(count - 1), 1});
  strategy.run([&](ReplicaContext& context) {
    CHECK(context.all_reduce(ReduceOp::sum, 1 << rank()) == (1 << count) - 1);
    CHECK(context.replica_id_in_sync_group() == count - 1 - rank());
  });
  CHECK(bits_of(strategy.ranks()) == (1 << count) - 1);
}

TEST_CASE("ranks that disagree in a group are named as the job counts them, and both groups go on") {
  if (ranks() < 3) return;
  if (rank() == 1) return expect_in_step();
  std::vector<int> others = down_from(ranks());
  std::erase(others, 1);
  Group group = everyone().subset(others);
  float values[] = {1, 2, 3};
  const std::string told = mismatch_of([&] { group.all_reduce(std::span{values}.first(odd_one() ? 2 : 3)); });
  CHECK(values[0] == 1);
  CHECK_THAT(told, Catch::Contains("replica " + std::to_string(last()) + " (") &&
                       Catch::Contains(" is at all_reduce #1 (groups.cpp:") && Catch::Contains(" with sum of f32[2]"));
  if (ranks() > 3) CHECK_THAT(told, Catch::Contains(", 0 are at all_reduce #1 (groups.cpp:"));
  CHECK(bits_of(group) == (1 << ranks()) - 1 - 2);
  expect_in_step();
}

TEST_CASE("a group refuses what its ranks cannot do, before they meet") {
  Group group = everyone();
  float value[] = {1};
  CHECK(message_of<InvalidArgument>([&] { group.broadcast(std::span{value}, ranks()); }) ==
        "broadcast from rank " + std::to_string(ranks()) + ": expected one of 0 to " + std::to_string(last()));
  CHECK_THROWS_AS(group.subset(std::vector{0, 0}), InvalidArgument);
  expect_in_step();
}
