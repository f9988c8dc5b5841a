// The simulated job: its schedule, its time, its end.
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>

#include "job/sim/virtual_time.hpp"
#include "support/sim_outcome.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::outcome_of;
using lockstep::test::SimOutcome;

namespace {

using Lines = std::vector<std::string>;

void two_steps(Strategy& strategy, int rank) {
  for (int step = 0; step < 2; ++step)
    strategy.run([&](ReplicaContext& context) { (void)context.all_reduce(ReduceOp::sum, 1. * rank); });
}

Lines trace_of(std::uint64_t seed, std::vector<sim::Options::Fault> faults = {}) {
  Lines lines;
  try {
    sim::run({.ranks = 5,
              .seed = seed,
              .faults = std::move(faults),
              .trace = [&](std::string_view line) { lines.emplace_back(line); },
              .report = [](std::string_view) {}},
             two_steps);
  } catch (const Error&) {
  }
  return lines;
}

/// What the process writes to stderr during `body`.
std::string stderr_of(const std::function<void()>& body) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file);
  std::fflush(stderr);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(::fileno(file), STDERR_FILENO);
  body();
  std::fflush(stderr);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  std::fseek(file, 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::ftell(file)), ' ');
  std::rewind(file);
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

/// Counts those that live.
class Counted {
 public:
  explicit Counted(int& alive) : alive_{alive} { ++alive_; }
  Counted(const Counted&) = delete;
  ~Counted() { --alive_; }

 private:
  int& alive_;
};

}  // namespace

TEST_CASE("a seed replays its schedule, another seed has another") {
  std::set<Lines> schedules;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Lines lines = trace_of(seed);
    CHECK(lines.size() > 5 * 8);
    CHECK(lines == trace_of(seed));
    schedules.insert(lines);
  }
  CHECK(schedules.size() == 10);
}

TEST_CASE("a schedule with faults is replayed with them") {
  for (const auto kind : {sim::Options::Fault::Kind::die, sim::Options::Fault::Kind::stop}) {
    const Lines lines = trace_of(3, {{.kind = kind, .rank = 2, .point = 6}});
    CHECK(lines == trace_of(3, {{.kind = kind, .rank = 2, .point = 6}}));
    CHECK(lines != trace_of(3));
  }
}

TEST_CASE("the trace says when which rank came where") {
  const Lines lines = trace_of(1);
  const auto holds = [&](const std::string& wanted) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.find(wanted) != std::string::npos; });
  };
  CHECK(holds(" ns: replica 4: max for merge_call #1 (sim.cpp:"));
  CHECK(holds(" ns: replica 0: done with all_gather of u8["));
}

TEST_CASE("seeds reach every order of three ranks") {
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    std::vector<int> order;
    sim::run({.ranks = 3, .seed = seed}, [&](Strategy&, int rank) {
      sim::yield();
      order.push_back(rank);
    });
    orders.insert(order);
  }
  CHECK(orders.size() == 6);
}

TEST_CASE("one rank runs at a time") {
  // No atomics: were two to run at once, the sanitizers would see it, and the sum would be off.
  int inside = 0;
  std::int64_t passed = 0;
  sim::run({.ranks = 8}, [&](Strategy& strategy, int) {
    for (int i = 0; i < 50; ++i) {
      CHECK(++inside == 1);
      ++passed;
      --inside;
      if (i % 2 == 0) strategy.run([](ReplicaContext&) {});
      sim::yield();
    }
  });
  CHECK(passed == 8 * 50);
}

TEST_CASE("virtual time passes where ranks wait, and costs none") {
  std::vector<sim::Time> woken;
  sim::run({.ranks = 3, .stall_timeout = sim::Time::max()}, [&](Strategy&, int rank) {
    const sim::Time before = sim::now();
    sim::sleep(std::chrono::hours{1000 * (3 - rank)});
    CHECK(sim::now() - before == std::chrono::hours{1000 * (3 - rank)});
    woken.push_back(sim::now());
  });
  CHECK(std::is_sorted(woken.begin(), woken.end()));
  CHECK(woken.size() == 3);
}

TEST_CASE("a rank without messages to wait for has no time pass") {
  sim::run({.ranks = 1}, [](Strategy&, int) {
    const sim::Time before = sim::now();
    int sum = 0;
    for (int i = 0; i < 1000; ++i) sum += i;
    CHECK(sum == 499500);
    CHECK(sim::now() == before);
  });
}

TEST_CASE("each rank has a strategy, a context and a place of its own") {
  std::set<Strategy*> strategies;
  sim::run({.ranks = 6}, [&](Strategy& strategy, int rank) {
    strategies.insert(&strategy);
    CHECK(strategy.num_replicas_in_sync() == 6);
    CHECK(strategy.rank() == rank);
    CHECK_FALSE(Strategy::has_current());
    const Scope scope = strategy.scope();
    sim::yield();
    CHECK(&Strategy::current() == &strategy);
    strategy.run([&](ReplicaContext& context) {
      sim::yield();
      CHECK(ReplicaContext::current() == &context);
      CHECK(context.replica_id_in_sync_group() == rank);
    });
  });
  CHECK(strategies.size() == 6);
}

TEST_CASE("outside of a simulated job yield does nothing, and the others are a ContextError") {
  sim::yield();
  CHECK_THROWS_AS(sim::sleep(1s), ContextError);
  CHECK_THROWS_AS(sim::now(), ContextError);
  CHECK_THROWS_AS(sim::points(), ContextError);
}

TEST_CASE("options that make no sense are refused") {
  const auto body = [](Strategy&, int) {};
  CHECK_THROWS_WITH(sim::run({.ranks = 0}, body), "sim: 0 ranks: expected one or more");
  CHECK_THROWS_AS(sim::run({.stall_timeout = 0s}, body), InvalidArgument);
  CHECK_THROWS_AS(sim::run({.longest_latency = -1s}, body), InvalidArgument);
  CHECK_THROWS_WITH(sim::run({.ranks = 2, .faults = {{.rank = 2, .point = 0}}}, body),
                    "sim: a fault on replica 2: expected one of 0 to 1");
}

TEST_CASE("without latency too") {
  sim::run({.ranks = 7, .longest_latency = 0s}, [](Strategy& strategy, int rank) {
    CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{rank}) == 21);
    CHECK(sim::now() == 0s);
  });
}

TEST_CASE("an exception that leaves the body of one rank is thrown by run, and a PeerError on the others") {
  struct Mine {};
  for (int culprit = 0; culprit < 4; ++culprit) {
    int told = 0;
    std::string line;
    const auto body = [&](Strategy& strategy, int rank) {
      if (rank == culprit) throw Mine{};
      try {
        two_steps(strategy, rank);
      } catch (const PeerError& error) {
        CHECK(error.rank() == culprit);
        CHECK(std::string{error.what()} == "replica " + std::to_string(culprit) +
                                               " (worker:" + std::to_string(culprit) +
                                               ", host sim) failed: an exception of an unknown type");
        ++told;
        throw;
      }
    };
    CHECK_THROWS_AS(sim::run({.ranks = 4, .seed = 8, .report = [&](std::string_view text) { line = text; }}, body),
                    Mine);
    CHECK(told == 3);
    CHECK_THAT(line, Catch::StartsWith("sim: seed 8, 4 ranks: replica " + std::to_string(culprit) + " ("));
  }
}

TEST_CASE("an exception that leaves a run is the culprit's own when run throws it") {
  const SimOutcome outcome = outcome_of({.ranks = 5, .seed = 2}, [](Strategy& strategy, int rank) {
    strategy.run([&](ReplicaContext&) {
      if (rank == 3) throw std::out_of_range{"the cat ate sample 7"};
    });
  });
  CHECK(outcome.is<std::out_of_range>());
  CHECK_THAT(outcome.line, Catch::StartsWith("sim: seed 2, 5 ranks: replica 3 (worker:3, host sim) failed: the cat ate "
                                             "sample 7; it was in step 1, computing (sim.cpp:"));
  for (const int rank : {0, 1, 2, 4}) CHECK(outcome.is<PeerError>(rank));
}

TEST_CASE("a job that fails as a test expects prints nothing, and its exception names the seed") {
  const auto fails = [](const std::function<void(Strategy&, int)>& body) {
    std::string words;
    const std::string printed = stderr_of([&] {
      try {
        sim::run({.ranks = 3, .seed = 17}, body);
      } catch (const std::exception& error) {
        words = error.what();
      }
    });
    CHECK(printed.empty());
    return words;
  };
  CHECK_THAT(fails([](Strategy& strategy, int rank) { (void)strategy.same_on_all(rank); }),
             Catch::EndsWith(" with 0 (sim: seed 17, 3 ranks)"));
  const std::string of_peer = fails([](Strategy&, int rank) {
    if (rank == 2) throw PeerError{1, "replica 1 is gone"};
  });
  CHECK(of_peer == "replica 1 is gone (sim: seed 17, 3 ranks)");
  const std::string own = fails([](Strategy&, int rank) {
    if (rank == 1) throw std::out_of_range{"sample 7"};
  });
  CHECK(own == "sample 7");
}

TEST_CASE("a failed assertion on a rank is reported with the seed") {
  struct Assertion {};
  const std::string printed = stderr_of([] {
    try {
      sim::run({.ranks = 1, .seed = 17}, [](Strategy&, int) { throw Assertion{}; });
    } catch (const Assertion&) {
    }
  });
  CHECK_THAT(printed, Catch::StartsWith("sim: seed 17, 1 rank: replica 0 (") && Catch::EndsWith("\n"));
}

TEST_CASE("a disagreement that every rank throws is thrown once") {
  const SimOutcome outcome =
      outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) { (void)strategy.same_on_all(rank == 2 ? 0.2 : 0.1); });
  CHECK(outcome.is<MismatchError>());
  CHECK_THAT(outcome.what(), Catch::StartsWith("replica 2 (worker:2, host sim) is at same_on_all #1 (sim.cpp:"));
  for (int rank = 0; rank < 4; ++rank) CHECK(outcome.what(rank) == outcome.what());
}

TEST_CASE("a verdict that every rank catches is no failure of the job") {
  int caught = 0;
  sim::run({.ranks = 4}, [&](Strategy& strategy, int rank) {
    try {
      (void)strategy.same_on_all(rank);
    } catch (const MismatchError&) {
      ++caught;
    }
    CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}) == 4);
  });
  CHECK(caught == 4);
}

TEST_CASE("a rank that returns while others go on has finished the job, and they disagree") {
  const SimOutcome outcome = outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) {
    if (rank != 1) two_steps(strategy, rank);
  });
  CHECK(outcome.is<MismatchError>());
  CHECK_THAT(outcome.what(), Catch::StartsWith("replica 1 (worker:1, host sim) has finished the job; replicas 0, 2, 3 "
                                               "are at all_reduce #1 (sim.cpp:"));
  for (const int rank : {0, 2, 3}) CHECK(outcome.is<MismatchError>(rank));
}

TEST_CASE("a rank that leaves with a verdict which the others swallow is found where they go on") {
  const SimOutcome outcome = outcome_of({.ranks = 4}, [](Strategy& strategy, int rank) {
    try {
      (void)strategy.same_on_all(rank);
    } catch (const MismatchError&) {
      if (rank == 0) throw;
    }
    (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1});
  });
  CHECK(outcome.is<MismatchError>(0));
  for (const int rank : {1, 2, 3}) CHECK_THAT(outcome.what(rank), Catch::StartsWith("replica 0 ("));
  for (const int rank : {1, 2, 3}) CHECK_THAT(outcome.what(rank), Catch::Contains("has finished the job"));
}

TEST_CASE("whatever a job ends with, what its ranks held is given back") {
  using Kind = sim::Options::Fault::Kind;
  const std::vector<std::vector<sim::Options::Fault>> cases{
      {},
      {{.kind = Kind::die, .rank = 1, .point = 0}},
      {{.kind = Kind::stop, .rank = 0, .point = 3}},
      {{.kind = Kind::die, .rank = 0, .point = 5}, {.kind = Kind::stop, .rank = 3, .time = 1us}},
      {{.kind = Kind::stop, .rank = 0, .time = 0s},
       {.kind = Kind::stop, .rank = 1, .time = 0s},
       {.kind = Kind::stop, .rank = 2, .time = 0s},
       {.kind = Kind::stop, .rank = 3, .time = 0s}}};
  for (const auto& faults : cases) {
    int alive = 0;
    const SimOutcome outcome = outcome_of({.ranks = 4, .faults = faults}, [&](Strategy& strategy, int rank) {
      const Counted counted{alive};
      const auto in_scope = std::make_unique<Counted>(alive);
      const Scope scope = strategy.scope();
      two_steps(strategy, rank);
    });
    CHECK(alive == 0);
    CHECK(outcome.failed() == !faults.empty());
  }
}

TEST_CASE("a destructor may wait while its rank is taken out of the job") {
  struct WaitsAtItsEnd {
    ~WaitsAtItsEnd() {
      sim::yield();
      sim::sleep(1s);
    }
  };
  const SimOutcome outcome =
      outcome_of({.ranks = 3, .faults = {{.rank = 1, .point = 2}}}, [](Strategy& strategy, int rank) {
        const WaitsAtItsEnd waits;
        two_steps(strategy, rank);
      });
  CHECK(outcome.is<PeerError>());
}

TEST_CASE("a job inside a rank of another is a job of its own") {
  int runs = 0;
  sim::run({.ranks = 2}, [&](Strategy& outer, int) {
    sim::run({.ranks = 3}, [&](Strategy& inner, int) { runs += inner.reduce(ReduceOp::sum, PerReplica<int>{1}); });
    sim::yield();
    CHECK(outer.reduce(ReduceOp::sum, PerReplica<int>{1}) == 2);
  });
  CHECK(runs == 2 * 3 * 3);
}
