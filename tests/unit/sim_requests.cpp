// Requests of groups: with ranks that differ, are late, wait for each other, or die.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/group/group.hpp>

#include "job/sim/virtual_time.hpp"
#include "support/any_request.hpp"
#include "support/sim_outcome.hpp"

namespace lockstep::test::sim_requests_cases {

using namespace std::chrono_literals;

using Kind = lockstep::sim::Options::Fault::Kind;
using lockstep::test::AnyRequest;
using lockstep::test::expect;
using lockstep::test::outcome_of;
using lockstep::test::replica_name;
using lockstep::test::SimOutcome;

namespace {

/// Overlapping groups, to which each rank submits in an order of its own, and waits in another.
void submit_at_random(Strategy& all, int rank, std::uint64_t seed) {
  const std::vector<std::vector<int>> members{{0, 1, 2}, {3, 1}, {2, 3, 0}, {3, 2, 1, 0}, {1, 0}};
  std::vector<std::optional<Group>> groups(members.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    if (std::ranges::count(members[i], rank)) groups[i] = all.ranks().subset(members[i]);
  std::mt19937_64 draw{seed * 16 + static_cast<std::uint64_t>(rank)};
  std::vector<std::unique_ptr<AnyRequest>> under_way;
  std::vector<std::uint64_t> submitted(members.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < members.size(); ++i)
    if (groups[i]) order.insert(order.end(), 3, i);
  std::ranges::shuffle(order, draw);
  for (const std::size_t i : order) {
    std::mt19937_64 common{(seed * 16 + i) * 4 + submitted[i]++};
    const AnyRequest::Kind kind = AnyRequest::drawn(common);
    under_way.push_back(std::make_unique<AnyRequest>(*groups[i], kind, common() % 4 == 0 ? 10'000 : common() % 9));
    if (draw() % 3 == 0) (void)under_way[draw() % under_way.size()]->test();
    if (draw() % 5 == 0) sim::sleep(1ms);
  }
  std::ranges::shuffle(under_way, draw);
  for (const auto& each : under_way) {
    each->wait();
    expect(each->is_right(), "what the request must bring");
  }
}

}  // namespace

TEST_CASE("overlapping groups do what each rank has submitted in an order of its own") {
  // LOCKSTEP_SIM_SCHEDULES of them, which scripts/test --extended sets, as for sim_schedules.cpp.
  const char* const asked = std::getenv("LOCKSTEP_SIM_SCHEDULES");
  const std::uint64_t schedules = asked ? std::strtoull(asked, nullptr, 10) : 40;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    CAPTURE(seed);
    sim::run({.ranks = 4, .ranks_per_node = 2, .seed = seed},
             [&](Strategy& all, int rank) { submit_at_random(all, rank, seed); });
  }
}

TEST_CASE("a rank that dies while requests are under way is named, whenever that is") {
  const auto body = [](Strategy& all, int rank) { submit_at_random(all, rank, 2); };
  std::uint64_t points = 0;
  sim::run({.ranks = 4, .seed = 2}, [&](Strategy& all, int rank) {
    body(all, rank);
    if (rank == 2) points = sim::points();
  });
  CHECK(points > 60);
  for (std::uint64_t point = 0; point < points; point += 3) {
    CAPTURE(point);
    const SimOutcome outcome =
        outcome_of({.ranks = 4, .seed = 2, .faults = {{.kind = Kind::die, .rank = 2, .point = point}}}, body);
    CHECK(outcome.is<PeerError>());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(2) + " is gone: its process ended; it was "));
  }
}

TEST_CASE("a rank that does not come to a request is late for it, and so is one that does not move its data on") {
  for (const bool submits : {false, true}) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      CAPTURE(submits, seed);
      const SimOutcome outcome =
          outcome_of({.ranks = 3, .seed = seed, .stall_timeout = 5s}, [&](Strategy& all, int rank) {
            Group group = all.ranks().subset(std::vector{0, 1, 2});
            std::vector<int> values(100'000, rank);
            std::optional<Group::Request> request;
            if (rank != 1 || submits) request = group.submit_all_reduce(std::span{values});
            if (rank == 1) sim::sleep(20s);
            if (request) request->wait();
          });
      CHECK(outcome.is<StallError>());
      CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(1) + " is late: request #1 (sim_requests.cpp:"));
    }
  }
}

TEST_CASE("ranks that wait for requests of two groups in a circle are told so, with both places") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const SimOutcome outcome = outcome_of({.ranks = 3, .seed = seed, .stall_timeout = 5s}, [](Strategy& all, int rank) {
      if (rank == 2) return sim::sleep(20s);
      Group one = all.ranks().subset(std::vector{0, 1}), other = all.ranks().subset(std::vector{1, 0});
      if (rank == 0) one.submit_barrier().wait();
      other.submit_barrier().wait();
      if (rank == 1) one.submit_barrier().wait();
    });
    CHECK(outcome.is<StallError>());
    CHECK_THAT(outcome.what(), Catch::Contains("have waited for each other for 5 s: "));
    for (const int rank : {0, 1})
      CHECK_THAT(outcome.what(), Catch::Contains(replica_name(rank) +
                                                 " was before the first step, waiting at request #1 (sim_requests"));
  }
}

TEST_CASE("a request that others do not make is a mismatch in its own group alone") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    sim::run({.ranks = 3, .seed = seed}, [&](Strategy& all, int rank) {
      Group group = all.ranks().subset(std::vector{2, 1, 0});
      std::optional<Group> pair;
      if (rank < 2) pair = all.ranks().subset(std::vector{1, 0});
      std::vector<int> values(rank == 0 ? 2 : 1, 1), ones{1, 1};
      std::optional<Group::Request> right;
      if (pair) right = pair->submit_all_reduce(std::span{ones});
      Group::Request wrong = group.submit_all_reduce(std::span{values});
      std::string told;
      try {
        wrong.wait();
      } catch (const MismatchError& error) {
        told = error.what();
      }
      expect(told.starts_with(replica_name(0) + " is at all_reduce #1 (sim_requests.cpp:"), "a name: " + told);
      if (right) right->wait();
      expect(ones[0] == (pair ? 2 : 1), "the sum of the pair");
    });
  }
}

TEST_CASE("a verdict on a request is known to all ranks after its group is gone, and in a run it is said once") {
  for (const bool in_run : {false, true}) {
    const SimOutcome outcome = outcome_of({.ranks = 3, .seed = 5}, [&](Strategy& all, int rank) {
      const auto fail = [&] {
        Group group = all.ranks().subset(std::vector{2, 1, 0});
        std::vector<int> values(rank == 1 ? 2 : 1, 1);
        (in_run ? all.ranks() : group).submit_all_reduce(std::span{values}).wait();
      };
      if (in_run) all.run([&](ReplicaContext&) { fail(); });
      fail();
    });
    CHECK(outcome.is<MismatchError>());
    CHECK_THAT(outcome.line, Catch::Contains(replica_name(1) + " is at all_reduce #1 (sim_requests.cpp:") &&
                                 !Catch::Contains("failed") && !Catch::Contains("error"));
    for (const int rank : {0, 1, 2}) CHECK(outcome.is<MismatchError>(rank));
  }
}

TEST_CASE("a rank that fails in a run where others wait for a request is the one that is named") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const SimOutcome outcome = outcome_of({.ranks = 3, .seed = seed}, [](Strategy& all, int rank) {
      all.run([&](ReplicaContext&) {
        if (rank == 2) throw Error{"on purpose"};
        int ones[] = {1};
        all.ranks().submit_all_reduce(std::span{ones}).wait();
      });
    });
    CHECK(outcome.is<PeerError>(0));
    CHECK_THAT(outcome.line, Catch::Contains(replica_name(2) + " failed: on purpose") && !Catch::Contains("replica 0"));
  }
}

TEST_CASE("what a rank fails with reaches those that wait for its requests, however long the words are") {
  const std::string words(300, 'x');
  const SimOutcome outcome = outcome_of({.ranks = 3, .seed = 2}, [&](Strategy& all, int rank) {
    if (rank == 1) throw Error{"the words: " + words};
    int ones[] = {1};
    all.ranks().submit_all_reduce(std::span{ones}).wait();
  });
  CHECK(outcome.is<PeerError>(0));
  CHECK_THAT(outcome.what(0), Catch::Contains(replica_name(1) + " failed: the words: " + words));
}

}  // namespace lockstep::test::sim_requests_cases
