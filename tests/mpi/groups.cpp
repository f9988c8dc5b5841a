// Groups of some of the ranks, which overlap and have an order of their own.
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>

#include "strategy/replica_group.hpp"
#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// The ranks before `end`, the last first.
std::vector<int> down_from(int end) {
  std::vector<int> ranks;
  for (int rank = end - 1; rank >= 0; --rank) ranks.push_back(rank);
  return ranks;
}

int bits_of(Strategy& strategy) {
  return strategy.reduce(ReduceOp::sum, PerReplica<int>{1 << rank()});
}

}  // namespace

TEST_CASE("overlapping groups sum over their own ranks, in an order of their own") {
  const auto everyone = runtime().strategy().group().subset(down_from(ranks()));
  std::unique_ptr<ReplicaGroup> rest;
  if (!odd_one()) rest = runtime().strategy().group().subset(down_from(last()));
  CHECK(everyone->rank() == last() - rank());
  CHECK(everyone->node_of_rank().size() == static_cast<std::size_t>(ranks()));
  for (int round = 0; round < 3; ++round) {
    if (rest) {
      Strategy some{*rest};
      CHECK(some.rank() == last() - 1 - rank());
      CHECK(bits_of(some) == (1 << last()) - 1);
    }
    Strategy all{*everyone};
    CHECK(bits_of(all) == (1 << ranks()) - 1);
    CHECK(bits_of(runtime().strategy()) == (1 << ranks()) - 1);
  }
}

TEST_CASE("a strategy on some of the ranks has variables and runs of its own") {
  if (odd_one() && ranks() > 1) return;
  const int count = ranks() > 1 ? last() : 1;
  const auto group = runtime().strategy().group().subset(down_from(count));
  Strategy strategy{*group};
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
}

TEST_CASE("ranks that disagree in a group are named as the job counts them, and both groups go on") {
  if (ranks() < 3) return;
  if (rank() == 1) return expect_in_step();
  std::vector<int> others = down_from(ranks());
  std::erase(others, 1);
  const auto group = runtime().strategy().group().subset(others);
  Strategy strategy{*group};
  const std::string told = mismatch_of([&] {
    if (odd_one())
      (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
    else
      (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
  });
  const std::string odd = "replica " + std::to_string(last()) + " (";
  if (ranks() > 3)
    CHECK_THAT(told, Catch::StartsWith(odd) && Catch::Contains("; replicas 2, 0 are at "));
  else
    CHECK_THAT(told, Catch::Contains(odd) && Catch::Contains("replica 0 ("));
  CHECK(bits_of(strategy) == (1 << ranks()) - 1 - 2);
  expect_in_step();
}
