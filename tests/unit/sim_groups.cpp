// Groups of some of the ranks: they overlap, have an order of their own, and come and go.
#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/group/group.hpp>

#include "job/sim/virtual_time.hpp"
#include "support/sim_outcome.hpp"

namespace lockstep::test::sim_groups_cases {

using namespace std::chrono_literals;

using Kind = lockstep::sim::Options::Fault::Kind;
using lockstep::test::expect;
using lockstep::test::outcome_of;
using lockstep::test::replica_name;
using lockstep::test::SimOutcome;

namespace {

using Ranks = std::vector<int>;

/// A strategy on some of the ranks of another.
class Part {
 public:
  Part(Strategy& all, const Ranks& ranks) : strategy_{all.ranks().subset(ranks)} {}

  Strategy& strategy() { return strategy_; }
  int rank() const { return strategy_.rank(); }

 private:
  Strategy strategy_;
};

bool is_in(const Ranks& ranks, int rank) {
  return std::ranges::count(ranks, rank) > 0;
}

int sum_of(Strategy& strategy, int mine) {
  return strategy.reduce(ReduceOp::sum, PerReplica<int>{mine});
}

}  // namespace

TEST_CASE("groups overlap, and come and go in one order, from which each rank leaves out those that it is not in") {
  const std::vector<Ranks> groups{{0, 1, 2}, {4, 2, 3}, {4, 1}, {3, 0}, {2}, {1, 2, 0}};
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    sim::run({.ranks = 5, .ranks_per_node = 2, .seed = seed}, [&](Strategy& all, int rank) {
      std::vector<std::optional<Part>> parts(groups.size());
      std::mt19937_64 draw{seed};  // the same on every rank
      for (int event = 0; event < 60; ++event) {
        const std::size_t which = draw() % groups.size();
        const bool goes = draw() % 5 == 0;
        if (!is_in(groups[which], rank)) continue;
        std::optional<Part>& part = parts[which];
        if (part && goes) {
          part.reset();
        } else if (!part) {
          part.emplace(all, groups[which]);
        } else {
          expect(groups[which][static_cast<std::size_t>(part->rank())] == rank, "the order that was asked for");
          int bits = 0;
          for (const int each : groups[which]) bits |= 1 << each;
          expect(sum_of(part->strategy(), 1 << rank) == bits, "the sum over the group");
        }
      }
      expect(sum_of(all, 1 << rank) == 31, "the sum over all ranks");
    });
  }
}

TEST_CASE("a strategy on some of the ranks trains by itself, and its last rank may be the first of the job") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    sim::run({.ranks = 4, .seed = seed}, [](Strategy& all, int rank) {
      if (rank == 2) return;
      Part part{all, {3, 1, 0}};
      const MirroredVariable weight = part.strategy().create_variable(
          {.name = "w"}, [&] { return Tensor::scalar(10.f + static_cast<float>(rank)); });
      float sum = 0;
      part.strategy().run(
          [&](ReplicaContext& context) { sum = context.all_reduce(ReduceOp::sum, static_cast<float>(rank)); });
      expect(sum == 4, "the sum over the group");
      expect(weight.local().to_vector<float>() == std::vector<float>{13}, "the value of its first rank");
    });
  }
}

TEST_CASE("ranks that do different things in a group are named as the job counts them, and other groups go on") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::vector<std::string> told(4);
    sim::run({.ranks = 4, .seed = seed}, [&](Strategy& all, int rank) {
      std::optional<Part> two, three;
      if (rank == 3 || rank == 1) two.emplace(all, Ranks{3, 1});
      if (rank != 3) three.emplace(all, Ranks{0, 1, 2});
      if (two) try {
          if (rank == 3) (void)two->strategy().reduce(ReduceOp::sum, PerReplica<int>{1});
          if (rank == 1) (void)two->strategy().reduce(ReduceOp::sum, PerReplica<int>{1});
        } catch (const MismatchError& error) {
          told[static_cast<std::size_t>(rank)] = error.what();
        }
      if (three) expect(sum_of(three->strategy(), 1 << rank) == 7, "the sum over the other group");
      if (two) expect(sum_of(two->strategy(), 1 << rank) == 10, "that the group goes on");
    });
    CHECK(told[1] == told[3]);
    CHECK_THAT(told[1],
               Catch::StartsWith(replica_name(1) + " is at ") && Catch::Contains("; " + replica_name(3) + " is at "));
    CHECK(told[0].empty());
  }
}

TEST_CASE("ranks that use two groups in different orders are told so, with both places") {
  int line = 0;
  const SimOutcome outcome = outcome_of({.ranks = 3, .seed = 1}, [&line](Strategy& all, int rank) {
    if (rank == 2) return;
    Part a{all, {0, 1}};
    Part b{all, {1, 0}};
    line = __LINE__ + 1;
    if (rank == 0) (void)a.strategy().reduce(ReduceOp::sum, PerReplica<int>{1});
    (void)b.strategy().reduce(ReduceOp::sum, PerReplica<int>{1});
    if (rank == 1) (void)a.strategy().reduce(ReduceOp::sum, PerReplica<int>{1});
  });
  CHECK(outcome.is<StallError>());
  const auto at = [](int line) { return "is at reduction #1 (sim_groups.cpp:" + std::to_string(line) + ")"; };
  CHECK_THAT(outcome.what(), Catch::Contains(replica_name(0) + " " + at(line)) &&
                                 Catch::Contains(replica_name(1) + " " + at(line + 1)));
}

TEST_CASE("a rank that is late in a group is named, and nobody who is not in it") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const SimOutcome outcome = outcome_of({.ranks = 4, .seed = seed, .stall_timeout = 5s}, [](Strategy& all, int rank) {
      if (rank == 1 || rank == 3) {
        Part part{all, {3, 1}};
        if (rank == 1) sim::sleep(20s);
        (void)sum_of(part.strategy(), 1);
      }
      if (rank == 0 || rank == 2) sim::sleep(4s);  // they wait for the end of the job, but not as long
    });
    CHECK(outcome.is<StallError>());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(1) + " is late: reduction #1 (sim_groups.cpp:"));
  }
}

TEST_CASE("a rank that dies is found at each of its points in a group") {
  const auto body = [](Strategy& all, int rank) {
    if (rank == 0) return;
    Part part{all, {2, 1}};
    (void)sum_of(part.strategy(), 1 << rank);
  };
  std::uint64_t points = 0;
  sim::run({.ranks = 3, .seed = 2}, [&](Strategy& all, int rank) {
    body(all, rank);
    if (rank == 2) points = sim::points();
  });
  CHECK(points >= 4);
  for (std::uint64_t point = 0; point < points; ++point) {
    const SimOutcome outcome =
        outcome_of({.ranks = 3, .seed = 2, .faults = {{.kind = Kind::die, .rank = 2, .point = point}}}, body);
    CAPTURE(point);
    CHECK(outcome.is<PeerError>());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(2) + " is gone: its process ended; it was "));
  }
}

TEST_CASE("ranks that cannot make a group are refused before they meet anybody") {
  sim::run({.ranks = 3}, [](Strategy& all, int rank) {
    const auto refusal = [&](const Ranks& ranks) -> std::string {
      try {
        (void)all.ranks().subset(ranks);
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "";
    };
    expect(refusal({0, 3}) == "a group of ranks 0, 3: expected each once, and of 0 to 2", "a rank that there is");
    expect(refusal({1, 1}) == "a group of ranks 1, 1: expected each once, and of 0 to 2", "each once");
    const std::string other = std::to_string((rank + 1) % 3);
    expect(refusal({(rank + 1) % 3}) ==
               "a group of ranks " + other + " on rank " + std::to_string(rank) + ": expected it among them",
           "this rank");
  });
}

TEST_CASE("ranks that have nothing more to do wait for those that still work in a group") {
  const SimOutcome outcome = outcome_of({.ranks = 3, .seed = 3, .stall_timeout = 5s}, [](Strategy& all, int rank) {
    if (rank == 2) return;
    Part part{all, {0, 1}};
    for (int round = 0; round < 10; ++round) {
      sim::sleep(2s);
      (void)sum_of(part.strategy(), 1);
    }
  });
  CHECK(outcome.what() == "nothing");
}

TEST_CASE("of ranks that wait for each other in several groups, the one that holds up all is late") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const SimOutcome outcome = outcome_of({.ranks = 3, .seed = seed, .stall_timeout = 5s}, [](Strategy& all, int rank) {
      std::optional<Part> first, second;
      if (rank < 2) first.emplace(all, Ranks{0, 1});
      if (rank > 0) second.emplace(all, Ranks{1, 2});
      if (rank == 2) sim::sleep(20s);
      if (second) (void)sum_of(second->strategy(), 1);
      if (first) (void)sum_of(first->strategy(), 1);
    });
    CHECK(outcome.is<StallError>());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(2) + " is late: reduction #1 (sim_groups.cpp:"));
  }
}

TEST_CASE("a group that ranks make from different ones is a mismatch, before its data move") {
  const SimOutcome outcome = outcome_of({.ranks = 2, .seed = 4}, [](Strategy& all, int rank) {
    const Group turned = all.ranks().subset(Ranks{1, 0});
    const Group made = rank == 0 ? all.ranks().subset(Ranks{0, 1}) : turned.subset(Ranks{1, 0});
  });
  CHECK(outcome.is<MismatchError>());
  CHECK_THAT(outcome.what(), Catch::Contains("the making of a group (sim_groups.cpp:"));
}

TEST_CASE("an open sum is completed before an agreement in another group, so no rank waits for it there") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    sim::run({.ranks = 2, .seed = seed}, [](Strategy& all, int rank) {
      Group part = all.ranks().subset(Ranks{1, 0});
      all.run([&](ReplicaContext& context) {
        auto sum = context.all_reduce_async(ReduceOp::sum, 1 << rank);
        if (rank == 1) expect(sum.wait() == 3, "the sum of both");
        int ones[] = {1};
        part.all_reduce(std::span{ones});
        expect(ones[0] == 2, "the sum over the group");
        if (rank == 0) expect(sum.wait() == 3, "the sum of both");
      });
    });
  }
}

TEST_CASE("a wish to stop reaches the runs of every group, and that of a group the whole job") {
  sim::run({.ranks = 2}, [](Strategy& all, int rank) {
    Part part{all, {1, 0}}, other{all, {0, 1}};
    if (rank == 1) part.strategy().request_stop();
    for (Strategy* const each : {&all, &part.strategy(), &other.strategy()}) {
      each->run([](ReplicaContext&) {});
      expect(each->stop_requested(), "that the wish is known");
    }
  });
}

}  // namespace lockstep::test::sim_groups_cases
