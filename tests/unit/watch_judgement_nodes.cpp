// What a watchdog makes of ranks of other nodes, of the end of a job, and of stalls that are only observed.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/watch/judgement.hpp"
#include "judgement_scene.hpp"

using namespace lockstep;
using lockstep::test::check_rules;
using lockstep::test::never;
using lockstep::test::next_said;
using lockstep::test::Said;
using lockstep::test::Scene;

namespace {

using Seconds = Scene::Seconds;

}  // namespace

TEST_CASE("ranks of other nodes are gone, late or out of reach after these times", "[B-45]") {
  const auto two = [](int row = 0) { return Scene{{0, 1}, row}; };
  const auto host_of_two = [] { return Scene{{0, 1, 1}}; };
  check_rules({
      {"late", two().enters(0, 1), 1026, "b is late"},
      {"its neighbour beats", host_of_two().falls_silent(1), 1025, "b has stopped"},
      {"its neighbour beat less than half the timeout ago", host_of_two().falls_silent(2).falls_silent(1, 514), 1025,
       "c has stopped"},
      {"its neighbour beat half the timeout ago", host_of_two().falls_silent(2).falls_silent(1, 513), 1025,
       "b cannot be reached: no sign of life from any rank of its host for 1 s; it was before"},
      {"its neighbour is mute, and shows no life either",
       host_of_two().falls_silent(1).falls_silent(2, 400).agrees_until(400), 1425,
       "b cannot be reached: no sign of life from any rank of its host for 1 s"},
      {"its neighbour's heartbeats came late, and agreements meanwhile",
       Scene{{0, 1, 1}}.falls_silent(1, 100).falls_silent(2, 110).agrees_until(110), 1135, "b cannot be reached"},
      {"sooner than who waits for it is late",
       Scene{{0, 1, 2}}.enters(1, 1).enters(2, 1).enters(0, 2).falls_silent(2, 1000), 2025, "c cannot be reached"},
      {"refused: two heartbeats and twice terminate_spread", two().falls_silent(1).refuses(1), 619,
       "b is gone: its process ended"},
      {"refused for 1.5 s, as a guest's host wants it",
       two().timeout(4).falls_silent(1).refuses(1).with([](Scene& s) { s.job.refusal = Seconds{1.5}; }), 1848,
       "b is gone: its process ended"},
      {"refused, but agreements need it", two().falls_silent(1).refuses(1).agrees_until(never), never, ""},
      {"two heartbeats and terminate_spread", two().falls_silent(1).terminates(1), 312, "b is gone: SIGTERM ended it"},
      {"the network", two().enters(1, 1).enters(0, 1), 1026,
       "a is cut off: every rank has come to merge_call #5 (trainer.cpp:120), which has not ended for 1 s"},
      {"who waits too and beat half the timeout ago may have stopped",
       two().enters(1, 1).enters(0, 1).falls_silent(1, 514), 1539, "b cannot be reached"},
      {"who beat less than that ago has not", two().enters(1, 1).enters(0, 1).falls_silent(1, 515), 1026,
       "a is cut off"},
  });
}

TEST_CASE("ranks whose heartbeats do not come are mute, warned of or not judged after these times") {
  const auto two = [](int row = 0) { return Scene{{0, 1}, row}; };
  const Scene::Change agrees_1000_times = [](Scene& s) {
    if (s.looks <= 1000) ++s.row(0).passed;
    if (s.looks == 1001) s.enters(0, 1);
  };
  const auto misses = [](int row) { return [row](Scene& s) { ++s.sight(row).missed_datagrams; }; };
  // Rank b's go to d, which is heard of in one look of several.
  const auto carried_in_each = [](int looks) {
    return Scene{{0, 0, 2, 2}, 2}.falls_silent(1).falls_silent(3).in_each_look(
        [looks](Scene& s) { s.row(3).heartbeat += s.looks % looks == 0; });
  };
  check_rules({
      {"patience_with_mute: ten times the timeout", two().falls_silent(1).in_each_look(agrees_1000_times), 11251,
       "b does not come: merge_call #5 (trainer.cpp:120) was waited for 10 s, and no heartbeats of it get through"},
      {"not mute: agreements in the first quarter of the timeout",
       two().timeout(2).falls_silent(1).terminates(1).agrees_until(511), 823, "b is gone: SIGTERM ended it"},
      {"not mute yet: two agreements later", two().timeout(2).falls_silent(1).terminates(1).agrees_until(513), 825,
       "b is gone: SIGTERM ended it"},
      {"mute", two().timeout(2).falls_silent(1).terminates(1).agrees_until(514), never, ""},
      {"mute, and a firewall refuses", two().falls_silent(1).refuses(1).agrees_until(258), never, ""},
      {"none ever came", two().phase(1, Phase::absent).enters(0, 1), 10251, "b does not come"},
      {"time_for_tcp: 2 s", two().heard_here(1).falls_silent(1).agrees_until(never), 2049,
       "heartbeats between a and b do not get through by UDP, nor by TCP"},
      {"half the timeout, if that is longer", two().timeout(6).heard_here(1).falls_silent(1).agrees_until(never), 3072,
       "heartbeats between a and b do not get through by UDP, nor by TCP"},
      {"the other side could not hear of it", two(1).heard_here(0).falls_silent(0).agrees_until(never), never, ""},
      {"50 missed datagrams", two().heard_here(1).in_each_look(misses(1)), 50,
       "heartbeats between a and b do not get through by UDP: they go by TCP"},
      {"fewer with a short timeout", two().timeout(1.0 / 32).heard_here(1).in_each_look(misses(1)), 8,
       "heartbeats between a and b"},
      {"no turn: it is said who is about to warn", two(1).heard_here(0).in_each_look(misses(0)), 50,
       "heartbeats between b and a"},
      {"ticks_of_a_silent_carrier: 4", carried_in_each(5), 1025, "b has stopped"},
      {"and not 5", carried_in_each(6), never, ""},
      {"a carrier that leaves", carried_in_each(1).phase(3, Phase::leaving), never, ""},
  });
}

TEST_CASE("a rank that was told to end looks around, saves, says so and ends after these times") {
  const auto told = [](std::vector<int> lowest, int row = 0) { return Scene{std::move(lowest), row}.told(); };
  check_rules({
      {"all were told", told({0, 0}).terminates(1), 1, "says that it was interrupted"},
      {"terminate_spread: the others wait 0.3 s", told({0, 0}, 1).terminates(0), 308, "ends"},
      {"who SIGTERM ended was told too", told({0, 0}, 1).terminates(0).ends(0), 308, "ends"},
      {"last_look: rank 0 waits 0.8 s", told({0, 0}), 820, "ends"},
      {"with several nodes each rank does", told({0, 0, 2}, 1).terminates(0), 820, "ends"},
      {"so do those that save", told({0, 0}, 1).terminates(0).saves(), 820, "ends"},
      {"all save what they have made", told({0, 0}).terminates(1).saves(), 1, "saves"},
      {"time_to_save: 0.6 s", told({0, 0}).saves().reported(), 615, "ends"},
      {"nothing to save, and it was said", told({0, 0}).reported(), 1, "ends"},
      {"nobody says so while a rank leaves", told({0, 0}).terminates(1).phase(1, Phase::leaving), 820, "ends"},
      {"node_spread: others still beat after 0.6 s", told({0, 0, 2}).terminates(1).by_parent(), 615,
       "says that it was interrupted"},
      {"which means nothing if it was not mpirun", told({0, 0, 2}).terminates(1), 820, "ends"},
      {"silent for terminate_spread", told({0, 0}).untold(1).falls_silent(1), 308,
       "b is gone: no sign of life before the job was told to end"},
      {"elsewhere, two heartbeats longer", told({0, 1, 1}).falls_silent(2), 312,
       "c is gone: no sign of life before the job was told to end"},
      {"SIGTERM ended it before", told({0, 1}).falls_silent(1).terminates(1), 312, "b is gone: SIGTERM ended it"},
      {"one heartbeat was on its way", told({0, 1}).falls_silent(1, 1).terminates(1), 313,
       "b is gone: SIGTERM ended it"},
      {"last_look: 0.8 s, even if it could look for less", told({0, 1}).falls_silent(1).took(Seconds{0}), 820,
       "b is gone: no sign of life before the job was told to end"},
  });
  Scene saving = told({0, 0}).terminates(1).saves();
  CHECK(next_said(saving) == Said{1, "saves"});
  CHECK(next_said(saving) == Said{615, "says that it was interrupted"});
}

TEST_CASE("each node with lower living ranks has half a second to speak first") {
  const auto turn = [](Scene& scene) {
    REQUIRE(next_said(scene).first < never);
    return scene.finding.turn_ticks;
  };
  const auto third = [](std::vector<int> lowest) { return Scene{std::move(lowest), 2}; };
  CHECK(turn(third({0, 0, 0, 0}).falls_silent(3)) == 0);
  CHECK(turn(third({0, 1, 1, 1}).falls_silent(3)) == 513);
  CHECK(turn(third({0, 1, 2, 2}).falls_silent(3)) == 2 * 513);
  CHECK(turn(third({0, 1, 2, 2}).falls_silent(3).falls_silent(0)) == 513);
  CHECK(turn(third({0, 1, 2, 2}).ends(3)) == 0);
  // Told to end, it does not wait for those that it has not heard since.
  CHECK(turn(third({0, 1, 2, 2}).told().falls_silent(0).falls_silent(1)) == 0);
}

namespace {

/// Nine nodes of one rank each. Those of d and g are not near that of a.
Scene nine(int row = 0) {
  return Scene{{0, 1, 2, 3, 4, 5, 6, 7, 8}, row};
}

/// The look after which the rank that looks wished for the rows of all; nothing if it did not.
std::optional<int> wished(Scene scene) {
  while (scene.looks < 3000 && !scene.wished_at) scene.look();
  return scene.wished_at;
}

}  // namespace

TEST_CASE("ranks that are not near are judged while rows are passed on, and not before") {
  const Scene::Change wishes_all_the_time = [](Scene& s) { s.seen.wishes += s.looks % 2000 == 1; };
  const Scene::Change wishes_once = [](Scene& s) { s.seen.wishes = 1; };
  const auto passing = [&](const Scene& scene) { return Scene{scene}.in_each_look(wishes_all_the_time); };
  // All wait but d.
  const auto d_is_late = [] {
    Scene scene = nine().falls_silent(3);
    for (const int row : {0, 1, 2, 4, 5, 6, 7, 8}) scene.enters(row, 1);
    return scene;
  };
  const auto comes_in_each = [&](int looks) {
    return d_is_late().in_each_look([=](Scene& s) {
      wishes_all_the_time(s);
      s.row(3).heartbeat += s.looks % looks == 0;
    });
  };
  check_rules({
      {"not heard", nine().falls_silent(3), never, ""},
      {"not heard, and late", d_is_late(), never, ""},
      {"two rounds and two steps", passing(nine().falls_silent(3)), 8 + 1 + 1024, "d cannot be reached"},
      {"a wish lasts 4 s", nine().timeout(6).falls_silent(3).in_each_look(wishes_once), never, ""},
      {"which are enough for a shorter timeout", nine().falls_silent(3).in_each_look(wishes_once), 8 + 1 + 1024,
       "d cannot be reached"},
      {"late, and its row comes in each round", comes_in_each(2), 1026, "d is late"},
      {"somebody near has reported that it is gone", nine().falls_silent(3).lost(3), 1, "d is gone: its process ended"},
      {"this rank was told to end: the row may be on its way", nine().told().falls_silent(3), 820, "ends"},
      {"this rank is near, and looks for itself", nine().lost(4), never, ""},
  });
}

TEST_CASE("a rank wishes for the rows of all when it waits, misses a near rank, is asked or told to end") {
  CHECK(wished(nine()) == std::nullopt);
  CHECK(wished(Scene{{0, 1, 2, 3, 4}}.enters(0, 1)) == std::nullopt);  // all are near
  CHECK(wished(nine().enters(0, 1)) == 130);                           // an eighth of the timeout
  CHECK(wished(nine().timeout(60).enters(0, 1)) == 1026);              // longest_in_peace: 1 s
  CHECK(wished(nine().timeout(60).in_calls()) == 1026);
  CHECK(wished(nine().timeout(60).falls_silent(4)) == 1026);
  CHECK(wished(nine().timeout(60).falls_silent(4).phase(4, Phase::leaving)) == std::nullopt);
  CHECK(wished(nine().timeout(60).falls_silent(3)) == std::nullopt);
  CHECK(wished(nine().told()) == 1);
  CHECK(wished(nine().with([](Scene& s) { s.seen.asked = true; })) == 1);
  CHECK(wished(nine().with([](Scene& s) { s.seen.questions.asked = 1; })) == 1);
  Scene mute = nine().falls_silent(4).agrees_until(never);
  while (mute.looks < 300) mute.look();
  CHECK(mute.wished_at);
  mute.wished_at.reset();
  CHECK(wished(mute) == std::nullopt);
  // A wish is renewed when half of it is over.
  CHECK(wished(nine().wishes().timeout(60).enters(0, 1)) == 4097 / 2 + 1);
}

TEST_CASE("nodes near a silent one speak before others, and nodes of which no rank waits do not speak of a wait") {
  const auto turn = [](Scene scene) {
    REQUIRE(next_said(scene).first < never);
    return scene.finding.turn_ticks / 513;
  };
  // Near d are b, c, e, f, h and i; a and g are not.
  CHECK(turn(nine(1).falls_silent(3)) == 0);
  CHECK(turn(nine(4).falls_silent(3)) == 2);
  CHECK(turn(nine(4).falls_silent(3).terminates(1)) == 1);
  CHECK(turn(nine(0).lost(3)) == 6 + 1);  // d may live
  CHECK(turn(nine(0).falls_silent(3).wishes()) == 6);
  CHECK(turn(nine(6).falls_silent(3).wishes()) == 7);

  // All wait for a, which is late. Those of d and g are not near it.
  const auto waits = [](int row, std::vector<int> others) {
    Scene scene = nine(row).wishes().enters(row, 1);
    for (const int other : others) scene.enters(other, 1);
    return scene;
  };
  CHECK(turn(waits(6, {})) == 0);
  CHECK(turn(waits(6, {3, 4, 7, 8})) == 4);
  CHECK(turn(waits(5, {1, 2, 3, 7})) == 2);
  CHECK(turn(waits(6, {}).enters(2, 7, 1)) == 1);  // in another group
}

TEST_CASE("if the chief's node is out of reach, this side is cut off, and otherwise the other") {
  Scene both{{0, 1, 2}, 1}, other{{0, 1, 2}, 1};
  CHECK_THAT(next_said(both.falls_silent(0).falls_silent(2)).second, Catch::StartsWith("a cannot be reached"));
  CHECK((both.finding.reach == Reach::cut_off && both.finding.code == Error::ExitCode::stall));
  CHECK_THAT(next_said(other.falls_silent(2)).second, Catch::StartsWith("c cannot be reached"));
  CHECK((other.finding.reach == Reach::chiefs_side && other.finding.code == Error::ExitCode::stall));
}

namespace {

/// What is told of stalls up to a look, and when.
std::vector<Said> told_until(Scene& scene, int look) {
  std::vector<Said> told;
  while (scene.looks < look)
    if (const std::string words = scene.look(); !words.empty())
      told.emplace_back(scene.looks, words.substr(0, words.find(':')));
  return told;
}

}  // namespace

TEST_CASE("stalls that are only observed are told of one at a time: a heartbeat carries one") {
  Scene first = Scene{{0, 0, 0, 3}}.observes().falls_silent(1).falls_silent(2);
  CHECK(told_until(first, 5000) == std::vector<Said>{{1025, "b has stopped"}, {1028, "c has stopped"}});
  // The next node waits half a second from what was told last.
  Scene second = Scene{{0, 1, 1, 1}, 1}.observes().falls_silent(2).falls_silent(3).in_each_look(
      [](Scene& s) { s.sight(2).stall_told |= s.looks == 1500; });
  CHECK(told_until(second, 5000) == std::vector<Said>{{1500 + 514, "d has stopped"}});
}

TEST_CASE("a stall that is only observed is told of once in each place, as soon as stderr takes a line") {
  Scene scene = Scene{{0, 0, 0}}.observes().falls_silent(1);
  scene.seen.takes_a_line = false;
  CHECK(told_until(scene, 2000).empty());
  scene.seen.takes_a_line = true;
  CHECK(told_until(scene, 4000) == std::vector<Said>{{2001, "b has stopped"}});
  scene.sight(1).stall_told = false;  // it has gone on to another place
  CHECK(told_until(scene, 6000) == std::vector<Said>{{4001, "b has stopped"}});
  scene.ends(1).look();
  CHECK(scene.finding.code == Error::ExitCode::peer_failed);
}

TEST_CASE("a host that is out of reach is asked once for all of its ranks, also if that is only observed") {
  Scene scene = Scene{{0, 1, 1, 1}}.observes().falls_silent(1).falls_silent(2).falls_silent(3);
  CHECK(told_until(scene, 5000) == std::vector<Said>{{1025, "b cannot be reached"}});
  CHECK(scene.knocks == 1);
  CHECK((scene.sight(2).stall_told && scene.sight(3).stall_told));
}

TEST_CASE("an agreement that does not end is told of once, as a stall of the rank that tells of it") {
  const auto all_meet = [](int row) { return Scene{{0, 1, 2}, row}.observes().enters(0, 1).enters(1, 1).enters(2, 1); };
  const Scene::Change told_of_c = [](Scene& s) { s.sight(2).stall_told = true; };
  check_rules({
      {"the network", all_meet(0), 1026, "a is cut off: every rank has come to merge_call #5"},
      {"c, which waits too, was said to stall", all_meet(0).with(told_of_c), never, ""},
      {"c, which got through, was said to stall", all_meet(0).phase(2, Phase::computing).with(told_of_c), 1026,
       "a is cut off"},
      {"c, which waits in the next one, was said to stall", all_meet(0).enters(2, 2).with(told_of_c), 1026,
       "a is cut off"},
      {"c, which got through, is silent since", all_meet(0).phase(2, Phase::computing).with(told_of_c).falls_silent(2),
       1026, "a is cut off"},
  });
  Scene teller = all_meet(1), other = all_meet(2);
  CHECK(next_said(teller).first == 1026 + 513);
  CHECK(teller.finding.rows == std::vector{1});
  other.sight(1).stall_told = true;
  CHECK(told_until(other, 5000).empty());
}
