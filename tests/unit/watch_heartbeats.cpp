// Heartbeats between nodes, on one: what is sent, what is ignored, and what a watchdog makes of it.
#include <algorithm>
#include <array>
#include <bit>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "core/watch/watch_rounds.hpp"
#include "unit/watch_heartbeats_support.hpp"

using namespace lockstep;
using lockstep::test::Addresses;
using lockstep::test::CapturedStderr;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;
using lockstep::test::merge_tag;
using lockstep::test::numbers_to;
using lockstep::test::Ranks;
using lockstep::test::WatchedRank;

TEST_CASE("ranks of a node share the work of hearing the others") {
  const std::vector<int> lowest{0, 0, 2, 0, 2, 5};
  const NodeMap nodes{lowest};
  CHECK(nodes.ranks() == 6);
  CHECK(nodes.nodes() == 3);
  CHECK(nodes.ranks_on(0) == std::vector<int>{0, 1, 3});
  CHECK(nodes.ranks_on(1) == std::vector<int>{2, 4});
  CHECK(nodes.ranks_on(2) == std::vector<int>{5});
  CHECK(nodes.node_of(4) == 1);
  CHECK(nodes.same_node(0, 3));
  CHECK_FALSE(nodes.same_node(0, 2));
  CHECK(nodes.carrier(0, 1) == 2);
  CHECK(nodes.carrier(1, 1) == 4);
  CHECK(nodes.carrier(3, 1) == 2);
  CHECK(nodes.carrier(4, 0) == 1);
  CHECK(nodes.carrier(3, 2) == 5);
}

TEST_CASE("nodes are near each other at distances that are powers of two, up to five nodes all") {
  const auto ring = [](int nodes) { return NodeMap{numbers_to(nodes)}; };
  const NodeMap twelve = ring(12);
  for (int node = 0; node < 12; ++node) {
    std::vector<int> near;
    for (int other = 0; other < 12; ++other)
      if (twelve.are_near(node, other)) near.push_back((other - node + 12) % 12);
    std::ranges::sort(near);
    CHECK(near == std::vector<int>{1, 2, 4, 8, 10, 11});
  }
  for (int nodes = 1; nodes <= 5; ++nodes) CHECK(ring(nodes).are_all_near());
  CHECK_FALSE(ring(6).are_all_near());
  CHECK(ring(1).steps() == 0);
  CHECK(ring(512).steps() == 5);
}

TEST_CASE("a row comes to every node once on each route, over near nodes, and no node is on all ways to another") {
  using Route = NodeMap::Route;
  const int nodes = GENERATE(2, 3, 5, 6, 8, 9, 12, 31, 64, 100);
  const NodeMap map{numbers_to(nodes)};
  const int origin = nodes / 3;
  CAPTURE(nodes);
  // By route and node, the nodes on the way to it.
  std::array<std::vector<std::set<int>>, NodeMap::routes> ways;
  for (std::uint32_t route = 0; route < NodeMap::routes; ++route) {
    ways[route].resize(static_cast<std::size_t>(nodes));
    std::vector<int> reached{origin};
    for (std::size_t at = 0; at < reached.size(); ++at)
      for (const int next : map.next_on(static_cast<Route>(route), origin, reached[at])) {
        CHECK(map.are_near(reached[at], next));
        auto& way = ways[route][static_cast<std::size_t>(next)];
        way = ways[route][static_cast<std::size_t>(reached[at])];
        way.insert(reached[at]);
        CHECK(way.size() <= std::bit_width(static_cast<unsigned>(nodes - 1)));
        reached.push_back(next);
      }
    std::ranges::sort(reached);
    CHECK(reached == numbers_to(nodes));
  }
  const auto way = [&](Route route, int node) {
    return ways[static_cast<std::size_t>(route)][static_cast<std::size_t>(node)];
  };
  for (int node = 0; node < nodes; ++node)
    for (const Route up : {Route::up_by_long_steps, Route::up_by_short_steps})
      for (const Route down : {Route::down_by_long_steps, Route::down_by_short_steps})
        for (const int each : way(up, node)) CHECK((each == origin || !way(down, node).contains(each)));
}

TEST_CASE("a row that is sent around comes to all nodes, also if one of them passes nothing on") {
  constexpr int count = 9;
  for (int deaf = 1; deaf < count; ++deaf) {
    Ranks ranks{numbers_to(count)};
    CAPTURE(deaf);
    ranks.table(0).beat();
    ranks.beats(0).send_around(ranks.table(0));
    std::set<int> reached;
    REQUIRE(eventually([&] {
      for (int rank = 1; rank < count; ++rank) {
        if (rank != deaf) ranks.beats(rank).receive(ranks.table(rank));
        if (ranks.table(rank).read(0).heartbeat > 0) reached.insert(rank);
      }
      return reached.size() == count - 2;
    }));
    CHECK_FALSE(reached.contains(deaf));
  }
}

TEST_CASE("what is said once for the job reaches nodes that are not near, in as many heartbeats as there are steps") {
  Ranks ranks{numbers_to(9)};
  REQUIRE_FALSE(ranks.nodes.are_near(0, 3));
  ranks.table(0).wish(0);
  ranks.table(0).note_lost(8);
  REQUIRE(ranks.table(0).observe(7));
  ranks.table(0).show_observed(7);
  REQUIRE(ranks.table(0).claim_report());
  for (int step = 0; step < ranks.nodes.steps(); ++step) {
    CHECK(ranks.table(3).wishes() == 0);
    for (int rank = 0; rank < 9; ++rank) {
      ranks.table(rank).beat();
      ranks.beats(rank).send(ranks.table(rank));
    }
    const auto has_heard_near = [&](int rank) {
      ranks.beats(rank).receive(ranks.table(rank));
      return std::ranges::all_of(numbers_to(9), [&](int other) {
        return !ranks.nodes.are_near(rank, other) ||
               ranks.table(rank).read(other).heartbeat == ranks.table(other).read(other).heartbeat;
      });
    };
    for (int rank = 0; rank < 9; ++rank) REQUIRE(eventually([&] { return has_heard_near(rank); }));
  }
  CHECK(ranks.table(3).wishes() == 1);
  CHECK(ranks.table(3).lost() == 8);
  CHECK(ranks.table(3).is_observed(7));
  CHECK(ranks.table(3).reported());
  CHECK(ranks.table(3).read(0).phase == Phase::absent);
}

TEST_CASE("of two nodes that are about to report a stall, the lower one does, as soon as the other has heard of it") {
  Ranks ranks{{0, 1}};
  const Finding stall{.sentence = "a stall", .code = Error::ExitCode::stall, .rows = {0}};
  const Finding death{.sentence = "a death", .code = Error::ExitCode::peer_failed, .rows = {0}};
  using Turn = WatchRounds::Turn;
  const auto rounds_of = [&](int rank) {
    return std::make_unique<WatchRounds>(
        ranks.table(rank), WatchedJob{.names = {"a", "b"}, .nodes = ranks.nodes, .row = rank}, &ranks.beats(rank));
  };
  CHECK(rounds_of(1)->turn_to_report(death) == Turn::reports);
  const auto lower = rounds_of(0), higher = rounds_of(1);
  // Two heartbeats' time, in ticks.
  std::vector<Turn> turns;
  for (int tick = 0; tick < 5; ++tick) {
    turns.push_back(higher->turn_to_report(stall));
    ranks.table(0).note_speaker({.node = 2});
  }
  CHECK(turns == std::vector<Turn>{Turn::waits, Turn::waits, Turn::waits, Turn::waits, Turn::reports});

  CHECK(lower->turn_to_report(stall) == Turn::waits);
  REQUIRE(ranks.hears(1, 0));
  for (int tick = 5; tick < 16; ++tick) CHECK(higher->turn_to_report(stall) == Turn::waits);
  // The other one does not.
  CHECK(higher->turn_to_report(stall) == Turn::reports);
  for (int tick = 1; tick < 4; ++tick) CHECK(lower->turn_to_report(stall) == Turn::waits);
  CHECK(lower->turn_to_report(stall) == Turn::reports);
  REQUIRE(ranks.table(0).claim_report());
  REQUIRE(ranks.hears(1, 0));
  CHECK(higher->turn_to_report(stall) == Turn::is_over);
}

TEST_CASE("of nodes that would tell of a stall or warn at once, the lowest does, each time") {
  Ranks ranks{{0, 1, 2}};
  std::vector<std::unique_ptr<WatchRounds>> rounds;
  for (int rank = 0; rank < 3; ++rank)
    rounds.push_back(std::make_unique<WatchRounds>(
        ranks.table(rank), WatchedJob{.names = {"a", "b", "c"}, .nodes = ranks.nodes, .row = rank},
        &ranks.beats(rank)));
  // Who says it, if these ranks want to in each tick.
  const auto said_by = [&](const std::vector<int>& speakers, const auto& says) {
    std::vector<int> said;
    for (int tick = 0; tick < 20; ++tick)
      for (int rank = 0; rank < 3; ++rank) {
        rounds[static_cast<std::size_t>(rank)]->beat(WatchRounds::Heartbeat::now);
        if (std::ranges::count(speakers, rank) > 0 && says(*rounds[static_cast<std::size_t>(rank)]))
          said.push_back(rank);
      }
    return said;
  };
  for (const int row : {0, 2}) {
    const Finding stall{.sentence = "a stall", .code = Error::ExitCode::stall, .rows = {row}};
    const std::vector<int> speakers = row == 0 ? std::vector{0, 1} : std::vector{1, 2};
    CHECK(said_by(speakers, [&](WatchRounds& each) { return each.tells_of(stall); }) == std::vector{speakers.front()});
  }
  CHECK(said_by({1, 2}, [](WatchRounds& each) { return each.warns(); }) == std::vector{1});
}

TEST_CASE("a far row that came before a rank was told to end does not show that its rank has lived since") {
  Ranks ranks{numbers_to(6)};  // nodes 0 and 3 are not near each other
  PhaseTable& table = ranks.table(3);
  WatchRounds rounds{table, {.names = {"a", "b", "c", "d", "e", "f"}, .nodes = ranks.nodes, .row = 3}, &ranks.beats(3)};
  std::uint64_t heartbeat = 0;
  const auto look = [&](bool told) {
    rounds.beat(WatchRounds::Heartbeat::when_due, told);
    rounds.look_around([](int, PhaseTable::Snapshot&, Observation::Row&) {});
    if (told) rounds.seen().since_told = rounds.seen().since_told.value_or(Observation::Seconds{0}) + rounds.job().tick;
    return rounds.judge().last_act;
  };
  const auto comes = [&](int row) { table.write(row, {.heartbeat = heartbeat, .phase = Phase::computing}); };
  const auto near_rows_come = [&] {
    ++heartbeat;
    for (const int row : {1, 2, 4, 5}) comes(row);
  };
  near_rows_come();
  comes(0);
  REQUIRE(look(false) == LastAct::none);
  near_rows_come();
  comes(0);
  rounds.seen().told_by_parent = true;
  auto act = LastAct::none;
  for (int looks = 0; looks < 20 && act == LastAct::none; ++looks) {
    near_rows_come();
    act = look(true);
  }
  CHECK(act == LastAct::end);  // and does not say that the job was interrupted, as it would if all had lived
}

TEST_CASE("a watchdog sends its rank's row around once, and again as long as somebody wishes for the rows of all") {
  Ranks ranks{numbers_to(9)};
  const WatchedRank watched{ranks, 60};
  const auto beats_seen = [&] {
    for (int rank = 1; rank < 9; ++rank) ranks.beat(rank);
    return ranks.table(3).read(0).heartbeat;
  };
  REQUIRE(eventually([&] { return beats_seen() > 0; }));
  const auto in_peace = beats_seen();
  const auto now = ranks.table(0).read(0).heartbeat;
  REQUIRE(eventually([&] { return (void)beats_seen(), ranks.table(0).read(0).heartbeat > now + 10; }));
  CHECK(beats_seen() == in_peace);
  ranks.table(3).wish(0);
  REQUIRE(eventually([&] { return beats_seen() > in_peace + 10; }));
}

TEST_CASE("a watchdog that waits wishes for the rows of all, and asks a rank whose row does not come") {
  const bool is_deaf = GENERATE(false, true);
  CAPTURE(is_deaf);
  Ranks ranks{numbers_to(9)};
  for (int rank = 0; rank < 9; ++rank)
    if (rank != 3) ranks.table(rank).enter_meeting(1, merge_tag());
  WatchedRank watched{ranks, 0.8};
  REQUIRE(eventually([&] {
    for (int rank = 1; rank < 9; ++rank) {
      ranks.beat(rank);
      if (ranks.table(rank).wishes() > 0 && !(rank == 3 && is_deaf)) ranks.beats(rank).send_around(ranks.table(rank));
    }
    return watched.ends() > 0;
  }));
  CHECK_THAT(watched.line(), Catch::Contains("lockstep: replica 3 is late: merge_call #5"));
}

TEST_CASE("a heartbeat carries what its rank is doing, to one rank of each other node") {
  Ranks ranks{{0, 0, 2, 2}};
  ranks.table(3).enter_meeting(17, merge_tag());
  ranks.table(3).set_stack_kept(ranks.table(3).read(3).meetings);
  ranks.table(3).set_memory({.resident = 5ull << 32, .peak = 6ull << 32});
  ranks.table(3).set_progress(7ull << 32);
  ranks.table(3).ask();
  REQUIRE(ranks.hears(1, 3));
  const auto seen = ranks.table(1).read(3);
  CHECK(seen.phase == Phase::meeting);
  CHECK(seen.meeting == 17);
  CHECK(seen.process.here == 0);
  CHECK(seen.process.there == ::getpid());
  CHECK(seen.memory.resident == 5u << 22);
  CHECK(seen.progress == 7ull << 32);
  CHECK(seen.has_stack());
  CHECK(ranks.table(1).questions().is_open());
  CHECK_FALSE(seen.terminated);
  CHECK(describe(seen) == "was before the first step, waiting at merge_call #5 (trainer.cpp:120)");
  CHECK(ranks.beats(1).heard_all(ranks.table(1)));
  CHECK_FALSE(ranks.beats(0).heard_all(ranks.table(0)));
  CHECK(ranks.table(0).read(3).phase == Phase::absent);

  ranks.table(3).set_terminated();
  ranks.table(3).enter(Phase::leaving);
  REQUIRE(ranks.hears(1, 3));
  CHECK(ranks.table(1).read(3).terminated);
  CHECK(ranks.table(1).read(3).phase == Phase::leaving);
}

TEST_CASE("that a failure was reported on one node is known on the others") {
  Ranks ranks{{0, 1}};
  REQUIRE(ranks.hears(0, 1));
  CHECK_FALSE(ranks.table(0).reported());
  CHECK(ranks.table(1).claim_report());
  REQUIRE(ranks.hears(0, 1));
  CHECK(ranks.table(0).reported());
  CHECK_FALSE(ranks.table(0).claim_report());
}

TEST_CASE("a stall that was told of on one node is known on the others, for as long as the rank stays there") {
  Ranks ranks{{0, 1, 2}};
  REQUIRE(ranks.hears(0, 2));
  REQUIRE(ranks.table(1).observe(2));
  ranks.table(1).show_observed(2);
  REQUIRE(ranks.hears(0, 1));
  CHECK(ranks.table(0).is_observed(2));
  CHECK_FALSE(ranks.table(0).is_observed(1));
  ranks.table(2).enter_meeting(1, merge_tag());
  REQUIRE(ranks.hears(0, 2));
  CHECK_FALSE(ranks.table(0).is_observed(2));
}

TEST_CASE("the host of a rank whose process ended says so, if the rank was heard before") {
  Ranks ranks{{0, 1, 2}};
  REQUIRE(ranks.hears(0, 1));
  ranks.heartbeats[1].reset();
  ranks.heartbeats[2].reset();
  CHECK_FALSE(ranks.beats(0).was_refused(1));
  WatchedRank watched{ranks, 30};
  REQUIRE(eventually([&] { return watched.ends() > 0; }));
  CHECK(watched.code() == Error::ExitCode::peer_failed);
  CHECK(ranks.beats(0).was_refused(1));
  CHECK_FALSE(ranks.beats(0).was_refused(2));
  CHECK(ranks.table(0).lost() == 1);
  CHECK(watched.line() == "lockstep: replica 1 is gone: its process ended; it was before the first step, computing\n");
}

TEST_CASE("a rank that is heard after its host refused a connection has not ended: a firewall may refuse") {
  std::uint16_t closed = 0;
  {
    const HeartbeatSockets gone;
    closed = gone.address().stream_port;
  }
  Ranks ranks{{0, 1}, [&](int rank, Addresses& told) {
                if (rank == 0) told[1].stream_port = closed;
              }};
  REQUIRE(ranks.hears(0, 1));
  REQUIRE(eventually([&] {
    ranks.beats(0).receive(ranks.table(0));
    return ranks.beats(0).was_refused(1);
  }));
  REQUIRE(ranks.hears(0, 1));
  CHECK_FALSE(ranks.beats(0).was_refused(1));
}

TEST_CASE("a node of which no rank beats cannot be reached, and is named by its lowest rank") {
  Ranks ranks{{0, 1, 1}};
  REQUIRE(ranks.hears(0, 1));
  REQUIRE(ranks.hears(0, 2));
  WatchedRank watched{ranks, 0.6};
  REQUIRE(eventually([&] { return watched.ends() > 0; }));
  CHECK(watched.code() == Error::ExitCode::stall);
  CHECK(watched.reach() == Reach::chiefs_side);
  CHECK(watched.line() ==
        "lockstep: replica 1 cannot be reached: no sign of life from any rank of its host for 0.6 s; it was before "
        "the first step, computing\n");
}

TEST_CASE("a rank whose node has higher ranks than another's speaks of a silence half a second later") {
  Ranks ranks{{0, 1, 1}};
  REQUIRE(ranks.hears(1, 0));
  ranks.table(1).write(2, {.phase = Phase::computing});  // a neighbour that never beats
  const auto from = ranks.table(1).read(1).heartbeat;
  WatchedRank watched{ranks, 1, 1};
  REQUIRE(eventually([&] {
    ranks.beat(0);
    return watched.ends() > 0;
  }));
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 2 has stopped"));
  // In ticks of 0.05 s: the stall timeout, the other node's turn, and less for mpirun to hear of it.
  CHECK(ranks.table(1).read(1).heartbeat >= from + 21 + 11);
}

TEST_CASE("a survivor on another node says who fell silent before it was told to end") {
  CapturedStderr captured;
  ChildProcess survivor{[]() -> int {
    Ranks ranks{{0, 1, 1}};
    if (!ranks.hears(0, 1) || !ranks.hears(0, 2)) return 97;
    const Watchdog watchdog{ranks.table(0),
                            {"a", "b", "c"},
                            {},
                            [](Error::ExitCode code, Reach) { ::_exit(static_cast<int>(code)); },
                            &ranks.beats(0)};
    ::raise(SIGTERM);
    return eventually([&] {
      ranks.beat(1);
      return false;
    });
  }};
  CHECK(survivor.wait() == static_cast<int>(Error::ExitCode::peer_failed));
  CHECK_THAT(captured.text(), Catch::StartsWith("lockstep: c is gone: no sign of life before the job was told to end"));
}

TEST_CASE("where everyone was told to end, on another node too, nobody is named") {
  CapturedStderr captured;
  ChildProcess survivor{[]() -> int {
    Ranks ranks{{0, 1}};
    if (!ranks.hears(0, 1)) return 97;
    const Watchdog watchdog{
        ranks.table(0), {"a", "b"}, {}, [](Error::ExitCode, Reach) { ::_exit(98); }, &ranks.beats(0)};
    ::raise(SIGTERM);
    ranks.table(1).set_terminated();
    return eventually([&] {
      ranks.beat(1);
      return false;
    });
  }};
  CHECK(survivor.wait() == -SIGTERM);
  CHECK(captured.text() == "lockstep: interrupted before the first step, computing\n");
}

TEST_CASE(
    "where mpirun told one node to end and the others live on, it was interrupted; anybody else's signal is not") {
  const bool by_parent = GENERATE(true, false);
  CAPTURE(by_parent);
  CapturedStderr captured;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  ChildProcess told{[&]() -> int {
    Ranks ranks{{0, 0, 2}};
    if (!ranks.hears(0, 2)) return 97;
    ranks.table(0).write(1, {.phase = Phase::computing, .terminated = true});
    const Watchdog watchdog{
        ranks.table(0), {"a", "b", "c"}, {}, [](Error::ExitCode, Reach) { ::_exit(98); }, &ranks.beats(0)};
    if (::write(ready[1], "", 1) != 1) return 96;
    if (!by_parent) ::raise(SIGTERM);
    return eventually([&] {
      ranks.beat(2);
      return false;
    });
  }};
  char byte;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  if (by_parent) told.signal(SIGTERM);
  CHECK(told.wait() == -SIGTERM);
  CHECK(captured.text() == (by_parent ? "lockstep: interrupted before the first step, computing\n" : ""));
  for (const int end : ready) ::close(end);
}
