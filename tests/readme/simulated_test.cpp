#include <catch2/catch.hpp>

#include <lockstep/lockstep.hpp>

using namespace lockstep;

namespace {

/// What is to be tested: a step in which the replicas count their samples.
int count_samples(Strategy& strategy, int mine) {
  return strategy.run([&](ReplicaContext& context) { return context.all_reduce(ReduceOp::sum, mine); }).local();
}

}  // namespace

TEST_CASE("every replica gets the same count, whatever the schedule") {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    sim::run({.ranks = 16, .seed = seed},
             [](Strategy& strategy, int rank) { CHECK(count_samples(strategy, rank) == 120); });
}

TEST_CASE("a replica that dies on its way is named to the others") {
  const auto run = [] {
    sim::run({.ranks = 16, .faults = {{.rank = 3, .point = 2}}},
             [](Strategy& strategy, int rank) { count_samples(strategy, rank); });
  };
  CHECK_THROWS_WITH(run(), Catch::StartsWith("replica 3 (worker:3, host sim) is gone"));
}
