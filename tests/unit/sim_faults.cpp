// Ranks that die, stop or stay away, at each point of the protocol: found on every other rank, and named.
#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "core/control/meeting_point.hpp"
#include "job/sim/virtual_time.hpp"
#include "support/sim_outcome.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test::sim_faults_cases {

using namespace std::chrono_literals;

using Kind = lockstep::sim::Options::Fault::Kind;
using lockstep::test::outcome_of;
using lockstep::test::replica_name;
using lockstep::test::SimOutcome;

namespace {

constexpr int ranks = 4;

/// What a training step does: variables, a reduction in both contexts, a run inside a merge function.
void train(Strategy& strategy, int rank) {
  const MirroredVariable weight = strategy.create_variable({.name = "weight"}, [] { return Tensor::scalar(1.f); });
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](ReplicaContext& context) {
      (void)context.all_reduce(ReduceOp::sum, 1. * rank);
      context.merge_call([&](Strategy& merged) { merged.run([](ReplicaContext&) {}); });
    });
    (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{rank});
  }
}

/// Scheduling points of a rank in `train`.
std::uint64_t points_of(int rank, std::uint64_t seed) {
  std::uint64_t points = 0;
  sim::run({.ranks = ranks, .seed = seed}, [&](Strategy& strategy, int self) {
    train(strategy, self);
    if (self == rank) points = sim::points();
  });
  return points;
}

/// Whether a rank may have done without the culprit.
enum class End { early, in_order };

/// What run throws, and every survivor.
template <class E>
void check_survivors(const SimOutcome& outcome, int culprit, const std::string& begin, End end) {
  CHECK(outcome.is<E>());
  CHECK_THAT(outcome.what(), Catch::StartsWith(begin));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    if (rank == culprit) {
      CHECK_FALSE(outcome.ended[index]);
    } else if (end == End::in_order && !outcome.of_rank[index]) {
      CHECK(outcome.ended[index]);
    } else {
      CHECK(outcome.is<E>(rank));
      CHECK(outcome.what(rank) == outcome.what());
    }
  }
}

/// At its last point it waits: its part of the last collective is out.
End end_of(std::uint64_t point, std::uint64_t points) {
  return point + 1 < points ? End::early : End::in_order;
}

std::string merge_call(int number, int line) {
  return "merge_call #" + std::to_string(number) + " (sim_faults.cpp:" + std::to_string(line) + ")";
}

}  // namespace

TEST_CASE("a rank that dies is found at each of its points") {
  for (const int culprit : {0, 2}) {
    const std::uint64_t points = points_of(culprit, 5);
    CHECK(points > 30);
    for (std::uint64_t point = 0; point < points; ++point) {
      CAPTURE(culprit, point);
      const SimOutcome outcome =
          outcome_of({.ranks = ranks, .seed = 5, .faults = {{.rank = culprit, .point = point}}}, train);
      check_survivors<PeerError>(outcome, culprit, replica_name(culprit) + " is gone: its process ended; it was ",
                                 end_of(point, points));
    }
  }
}

TEST_CASE("a rank that stops is found at each of its points, by the stall timeout") {
  for (const int culprit : {0, 3}) {
    const std::uint64_t points = points_of(culprit, 6);
    for (std::uint64_t point = 0; point < points; ++point) {
      CAPTURE(culprit, point);
      const SimOutcome outcome = outcome_of({.ranks = ranks,
                                             .seed = 6,
                                             .faults = {{.kind = Kind::stop, .rank = culprit, .point = point}},
                                             .stall_timeout = 7s},
                                            [](Strategy& strategy, int rank) {
                                              try {
                                                train(strategy, rank);
                                              } catch (const StallError&) {
                                                CHECK(sim::now() >= 7s);
                                                CHECK(sim::now() < 8s);
                                                throw;
                                              }
                                            });
      check_survivors<StallError>(outcome, culprit,
                                  replica_name(culprit) + " has stopped: no sign of life for 7 s; it was ",
                                  end_of(point, points));
    }
  }
}

TEST_CASE("what a rank was doing is said as a watchdog says it") {
  constexpr int line = __LINE__ + 3;
  const auto step = [](Strategy& strategy, int) {
    strategy.run([](ReplicaContext& context) {
      context.merge_call([](Strategy&) { sim::sleep(1s); });
      sim::sleep(1s);
    });
  };
  const auto said = [&](sim::Options::Fault fault) {
    return outcome_of({.ranks = ranks, .faults = {fault}}, step).what();
  };
  CHECK(said({.rank = 1, .point = 0}) ==
        replica_name(1) + " is gone: its process ended; it was in step 1, waiting at " + merge_call(1, line));
  CHECK(said({.rank = 1, .time = 1500ms}) ==
        replica_name(1) + " is gone: its process ended; it was in step 1, computing after " + merge_call(1, line));
  CHECK(said({.kind = Kind::stop, .rank = 1, .time = 500ms}) ==
        replica_name(1) + " has stopped: no sign of life for 60 s; it was in step 1, computing after " +
            merge_call(1, line) + "; replicas 0, 2, 3 have finished the step");
}

TEST_CASE("a fault at a time strikes wherever the rank is") {
  int struck = 0;
  for (int microseconds = 0; microseconds < 400; microseconds += 3) {
    CAPTURE(microseconds);
    const SimOutcome outcome =
        outcome_of({.ranks = ranks, .seed = 9, .faults = {{.rank = 1, .time = microseconds * 1us}}}, train);
    CHECK(outcome.is<PeerError>());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(1) + " is gone"));
    ++struck;
  }
  CHECK(struck > 100);
}

TEST_CASE("a fault that a rank never gets to does nothing") {
  const SimOutcome outcome = outcome_of({.ranks = ranks,
                                         .faults = {{.rank = 0, .point = 100000},
                                                    {.kind = Kind::stop, .rank = 1, .time = 1h},
                                                    {.rank = 2, .time = sim::Options::Fault::no_time}}},
                                        train);
  CHECK_FALSE(outcome.failed());
  CHECK(outcome.line.empty());
}

TEST_CASE("a rank that is lost when nobody needs it any more is a failure of the job all the same") {
  for (const Kind kind : {Kind::die, Kind::stop}) {
    // Its part of the last agreement is out.
    const SimOutcome outcome =
        outcome_of({.ranks = ranks, .faults = {{.kind = kind, .rank = 2, .point = points_of(2, 0) + 1}}}, train);
    CHECK(outcome.failed());
    CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(2)) && Catch::Contains("waiting at the end of the job"));
  }
}

TEST_CASE("a rank that runs, but stays away for longer than the stall timeout, is late") {
  constexpr int line = __LINE__ + 4;
  const SimOutcome outcome = outcome_of({.ranks = ranks, .stall_timeout = 5s}, [](Strategy& strategy, int rank) {
    strategy.run([&](ReplicaContext& context) {
      if (rank == 3) sim::sleep(4s);
      context.merge_call([](Strategy&) {});
      if (rank == 2) sim::sleep(6s);
      context.merge_call([](Strategy&) {});
    });
  });
  CHECK(outcome.is<StallError>());
  CHECK(outcome.what() == replica_name(2) + " is late: " + merge_call(2, line + 2) +
                              " was waited for 5 s; it runs, and was in step 1, computing after " +
                              merge_call(1, line) +
                              "; work that only one rank does is announced by working_alone() in C++ and Python, or "
                              "needs a longer stall timeout");
  for (int rank = 0; rank < ranks; ++rank) CHECK(outcome.is<StallError>(rank));
}

TEST_CASE("a rank that computes for longer than the stall timeout in a step that all agreed on is late for its sum") {
  constexpr int line = __LINE__ + 4;
  const SimOutcome outcome = outcome_of({.ranks = ranks, .stall_timeout = 5s}, [](Strategy& strategy, int rank) {
    const auto step = [&](int late) {
      strategy.run([&](ReplicaContext& context) {
        inside(context).declared_step("a sum", [&](Reductions& reductions, AgreedRegion& region) {
          if (rank == late) sim::sleep(rank == 2 ? 6s : 4s);
          const Tensor tensor = Tensor::scalar(1.0F);
          const TensorView view = tensor.view();
          region.wait_in([&] { reductions.all_reduce(ReduceOp::sum, {&view, 1}); });
        });
      });
    };
    step(3);
    step(2);
  });
  CHECK(outcome.is<StallError>());
  CHECK_THAT(
      outcome.what(),
      Catch::StartsWith(replica_name(2) + " is late: sum #1 of the step (sim_faults.cpp:" + std::to_string(line) +
                        ") was waited for 5 s; it runs, and was in step 2, computing (sim_faults.cpp:"));
}

TEST_CASE("a rank that computes for longer than the stall timeout is late for a reduction that others wait for") {
  constexpr int line = __LINE__ + 3;
  const SimOutcome outcome = outcome_of({.ranks = ranks, .stall_timeout = 5s}, [](Strategy& strategy, int rank) {
    strategy.run([&](ReplicaContext& context) {
      auto pending = context.all_reduce_async(ReduceOp::sum, rank);
      if (rank == 2) sim::sleep(6s);
      (void)pending.wait();
    });
  });
  CHECK(outcome.is<StallError>());
  const std::string site = "(sim_faults.cpp:" + std::to_string(line) + ")";
  CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(2) + " is late: the sum of all_reduce_async " + site +
                                               " was waited for 5 s; it runs, and was in step 1, computing after " +
                                               merge_call(1, line)));
}

TEST_CASE("of several faults the first that is noticed is told to everyone") {
  const SimOutcome outcome = outcome_of(
      {.ranks = ranks, .faults = {{.kind = Kind::stop, .rank = 0, .time = 10us}, {.rank = 3, .time = 20us}}}, train);
  CHECK(outcome.is<PeerError>());
  CHECK_THAT(outcome.what(), Catch::StartsWith(replica_name(3) + " is gone"));
  for (const int rank : {1, 2}) CHECK(outcome.what(rank) == outcome.what());
}

TEST_CASE("who swallows that the job is over is told again") {
  const SimOutcome outcome =
      outcome_of({.ranks = ranks, .faults = {{.rank = 1, .point = 4}}}, [](Strategy& strategy, int rank) {
        for (int i = 0; i < 20; ++i) {
          try {
            train(strategy, rank);
          } catch (const PeerError&) {
          }
        }
      });
  CHECK(outcome.is<PeerError>());
}

TEST_CASE("a reduction whose failure was swallowed has no result", "[K-7]") {
  int swallowed = 0;
  for (std::uint64_t point = 0; point < 12; ++point) {
    INFO("point " << point);
    outcome_of(
        {.ranks = 2, .faults = {{.kind = Kind::die, .rank = 1, .point = point}}}, [&](Strategy& strategy, int rank) {
          strategy.run([&](ReplicaContext& context) {
            auto pending = context.all_reduce_async(ReduceOp::sum, Tensor::scalar(1.f + rank));
            bool failed = false;
            try {
              context.merge_call([](Strategy&) {});
            } catch (const Error&) {
              failed = true;
            }
            try {
              const Tensor sum = pending.wait();  // outside of CHECK, which would stop what unwinds the dead rank
              CHECK(sum.to_vector<float>() == std::vector{3.f});
            } catch (const PeerError&) {
              swallowed += failed ? 1 : 0;
            }
          });
        });
  }
  CHECK(swallowed > 0);
}

}  // namespace lockstep::test::sim_faults_cases
