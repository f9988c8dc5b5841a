// What a watchdog makes of the ranks of its node, in virtual time: who is named, and in which look.
#include <csignal>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/watch/judgement.hpp"
#include "judgement_scene.hpp"

using namespace lockstep;
using lockstep::test::check_rules;
using lockstep::test::never;
using lockstep::test::next_said;
using lockstep::test::Scene;

namespace {

using Seconds = Scene::Seconds;

}  // namespace

TEST_CASE("ranks of a node are gone, stopped or late after these times", "[B-45]") {
  const Scene pair{{0, 0}};
  const auto job = [&] { return pair; };
  const double no_end = std::numeric_limits<double>::infinity();
  check_rules({
      {"gone, at once", job().ends(1), 1, "b is gone: its process ended; it was before the first step, computing"},
      {"gone by a signal", job().ends(1).with([](Scene& s) { s.row(1).ended_by = SIGSEGV; }), 1,
       "b is gone: SIGSEGV ended it; it was before"},
      {"gone for memory", job().ends(1).with([](Scene& s) { s.seen.killed[1] = "the kernel killed it"; }), 1,
       "b is gone: the kernel killed it; it was before"},
      {"terminate_spread: 0.3 s", job().ends(1).terminates(1), 308, "b is gone: SIGTERM ended it; it was"},
      {"half of what a quick launcher waits",
       job().ends(1).terminates(1).with([](Scene& s) { s.job.launcher_waits = Seconds{0.25}; }), 129,
       "b is gone: SIGTERM ended it; it was"},
      {"longest_tick: 1 s counts for four ticks", job().ends(1).terminates(1).took(Seconds{1}), 77, "b is gone"},
      {"who left properly may end", job().ends(1).phase(1, Phase::leaving).falls_silent(1), never, ""},
      {"who leaves looks at nobody", job().ends(1).phase(0, Phase::leaving), never, ""},
      {"stall timeout", job().falls_silent(1), 1025, "b has stopped: no sign of life for 1 s; it was before"},
      {"a longer one", job().timeout(2).falls_silent(1), 2049, "b has stopped: no sign of life for 2 s"},
      {"who meets others lives",
       job().falls_silent(1).in_each_look([](Scene& s) { s.row(1).meetings += s.looks == 1000; }), 2025,
       "b has stopped"},
      {"one without end", job().timeout(no_end).falls_silent(1), never, ""},
      {"one of more ticks than a counter holds", job().timeout(1e30).falls_silent(1), never, ""},
      {"the kernel does not tell of it", job().untold(1).falls_silent(1), 1025, "b has stopped"},
      {"late", job().enters(0, 1), 1026,
       "b is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before the first step"},
      {"for_another_cause: 1 s more", job().enters(1, 1).enters(0, 2), 2051, "b is late"},
      {"who works alone is not late", job().phase(1, Phase::alone).enters(0, 1), never, ""},
      {"who reads on is not late",
       job().enters(0, 1).in_each_look([](Scene& s) { s.row(1).progress += s.looks % 1025 == 0; }), never, ""},
      {"who hangs after it has read on is late",
       job().enters(0, 1).in_each_look([](Scene& s) { s.row(1).progress = std::min(s.looks, 2000); }), 3025,
       "b is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before the first step"},
      {"who waits for others is not late", job().enters(1, 1), never, ""},
      {"on one node, no network is to blame", job().enters(1, 1).enters(0, 1), never, ""},
      {"each wait counts afresh",
       job().enters(0, 1).in_each_look([](Scene& s) { s.row(0).meeting += s.looks % 1025 == 0; }), never, ""},
  });
}

TEST_CASE("a pause of the whole job is nobody's lateness") {
  const auto paused = [](Scene scene) {
    scene.took(Seconds{3600}).look();  // a single look, an hour after the one before
    const bool was_paused = Scene{scene}.judge().was_paused;
    scene.took(scene.job.tick);
    return std::pair{was_paused, next_said(scene).first};
  };
  // Nobody has beaten more than once meanwhile. What had not been waited for by then must still be waited for.
  CHECK(paused(Scene{{0, 0}}) == std::pair{true, never});
  CHECK(paused(Scene{{0, 1}}) == std::pair{true, never});
  CHECK(paused(Scene{{0, 0}}.enters(0, 1)) == std::pair{true, 1026});
  CHECK(paused(Scene{{0}}) == std::pair{true, never});
  // The others have beaten all the time: this rank alone was stopped.
  Scene alone{{0, 0, 0}};
  alone.row(2).heartbeat += 3600 * 1024;
  CHECK_FALSE(Scene{alone.took(Seconds{3600})}.judge().was_paused);
  CHECK_FALSE(Scene{alone.took(Seconds{0.4})}.judge().was_paused);
}

TEST_CASE("a rank that is inside its GPU's driver is stuck after these times, unless its GPU may wait for others") {
  const auto alone = [] { return Scene{{0}}.in_calls(); };
  const auto three = [] { return Scene{{0, 0, 0}}.in_calls(); };
  check_rules({
      {"stall timeout", alone(), 1026,
       "a is stuck: a call to its GPU's driver has not returned for 1 s; it was before the first step, computing"},
      {"a longer one", alone().timeout(2), 2050, "a is stuck: a call to its GPU's driver has not returned for 2 s"},
      {"one without end", alone().timeout(std::numeric_limits<double>::infinity()), never, ""},
      {"of several threads", alone().in_calls(3), 1026, "a is stuck"},
      {"all calls have returned", alone().in_calls(0), never, ""},
      {"each call counts afresh", alone().in_each_look([](Scene& s) {
         s.seen.calls.begun += s.looks % 1025 == 0;
         s.seen.calls.ended += s.looks % 1025 == 0;
       }),
       never, ""},
      {"so does one that begins while another goes on",
       alone().in_each_look([](Scene& s) { s.seen.calls.begun += s.looks % 1025 == 0; }), never, ""},
      {"where the others wait as well", three().enters(0, 1).enters(1, 1).enters(2, 1), 1026,
       "a is stuck: a call to its GPU's driver has not returned for 1 s; it was before the first step, waiting at "
       "merge_call #5"},
      {"between nodes, no network is to blame", Scene{{0, 1}}.in_calls().enters(0, 1).enters(1, 1), 1026, "a is stuck"},
      {"the others have come to what its GPU was given", three().gave(0, 1).gave(1, 1).gave(2, 1), 1026, "a is stuck"},
      {"one has not", three().gave(0, 2).gave(1, 2).gave(2, 1), 1026,
       "c is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before"},
      {"one waits in an earlier one", three().gave(0, 2).gave(1, 2).enters(2, 1), 1026, "a is stuck"},
      {"one works alone before", three().gave(0, 2).gave(1, 2).gave(2, 1).phase(2, Phase::alone), never, ""},
      {"one reads on before", three().gave(0, 2).gave(1, 2).gave(2, 1).in_each_look([](Scene& s) {
         s.row(2).progress += s.looks % 1025 == 0;
       }),
       never, ""},
      {"one works alone after", three().gave(0, 2).gave(1, 2).gave(2, 2).phase(2, Phase::alone), 1026, "a is stuck"},
      {"each collective counts afresh",
       three().gave(0, 2000).in_each_look([](Scene& s) { s.row(0).meeting += s.looks % 1025 == 0; }), never, ""},
      {"it leaves the job", alone().phase(0, Phase::leaving), never, ""},
  });
  Scene observed = alone().observes();
  CHECK(next_said(observed).first == 1026);
  CHECK(observed.finding.rows == std::vector{0});
  CHECK(next_said(observed).first == never);
}

TEST_CASE("if several ranks wait in what others are through, none of them is named alone") {
  const auto job = [] { return Scene{{0, 0, 0, 0}}; };
  check_rules({
      {"two", job().enters(0, 2).enters(1, 1).enters(2, 1).enters(3, 2), 2051,
       "error: merge_call #5 (trainer.cpp:120) has not ended for 1 s on replicas 1, 2, and no rank is late for it"},
      {"in different ones", job().enters(0, 3).enters(1, 1).enters(2, 2).enters(3, 3), 2051, "b is late"},
      {"another has not come", job().enters(0, 2).enters(1, 1).enters(2, 1), 1026, "d is late"},
  });
}

TEST_CASE("a rank is late only in groups that it belongs to, and as often as it has met there") {
  const auto job = [] { return Scene{{0, 0, 0}}; };
  const auto two_hosts = [] { return Scene{{0, 1, 2}}.members({0, 2}).enters(0, 9, 2); };
  check_rules({
      {"it has met there less often", job().members({0, 2}).enters(2, 9, 1).phase(2, Phase::computing).enters(0, 9, 2),
       1026, "c is late: merge_call #5 (trainer.cpp:120) was waited for 1 s"},
      {"it has not made the group yet", job().members({0, 2}).enters(0, 9, 1), 1026, "c is late"},
      {"it has come", job().members({0, 2}).enters(0, 9, 2).enters(2, 9, 2), never, ""},
      {"it has come to what is waited for, of several that were started",
       job().members({0, 2}).enters(0, 9, 5).waits_at(0, 2).enters(2, 9, 3).phase(2, Phase::computing), never, ""},
      {"it has not", job().members({0, 2}).enters(0, 9, 5).waits_at(0, 4).enters(2, 9, 3).phase(2, Phase::computing),
       1026, "c is late: merge_call #5 (trainer.cpp:120) was waited for 1 s"},
      {"it does not tell", job().members({0, 2}).enters(0, 9, 2).with([](Scene& s) { s.row(2).groups_not_shown = 1; }),
       never, ""},
      {"it waits in another group, for another cause", job().members({0, 1}).enters(0, 9, 1).enters(1, 8, 1), 2051,
       "b is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before the first step, waiting "
       "at merge_call #5"},
      {"it waits for all ranks", job().members({0, 1}).enters(0, 9, 1).enters(1, 7), 2051,
       "a and replica  have waited for each other for 1 s: a was"},
      {"what holds up whom it waits for",
       job().members({0, 1}).enters(0, 9, 1).enters(1, 8, 2).enters(2, 8, 1).phase(2, Phase::computing), 2051,
       "c is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before the first step, "
       "computing"},
      {"that works alone", job().members({0, 1}).enters(0, 9, 1).enters(1, 8, 2).enters(2, 8, 1).phase(2, Phase::alone),
       never, ""},
      {"they wait for each other",
       job().members({0, 1}).enters(1, 9, 1).enters(0, 8, 1).enters(1, 8, 2).enters(0, 9, 2), 2051,
       "a and replica  have waited for each other for 1 s: a was before the first step, waiting at merge_call #5 "
       "(trainer.cpp:120); b was before the first step, waiting at merge_call #5 (trainer.cpp:120); expected"},
      {"each wait counts afresh", job().members({0, 2}).enters(0, 9, 1).in_each_look([](Scene& s) {
         s.row(0).groups[9 % PhaseTable::groups_shown].number += s.looks % 1025 == 0;
       }),
       never, ""},
      {"the network of its group", two_hosts().enters(2, 9, 2), 1026, "a is cut off: every rank has come to"},
      {"who is mute elsewhere is not waited for",
       Scene{{0, 1, 2}}.members({0, 2}).enters(0, 9, 2).enters(2, 9, 2).phase(1, Phase::absent).with([](Scene& s) {
         s.job.stall_timeout = WatchedJob::Seconds{100};
       }),
       never, ""},
  });
}

TEST_CASE("ranks that wait for each other are named early, once, and the job goes on until the stall timeout") {
  const auto circle = [] { return Scene{{0, 0}}.timeout(10).members({0, 1}).enters(0, 9, 1).enters(1, 7); };
  Scene told = circle();
  const auto [look, words] = next_said(told);
  CHECK(look == 3074);
  CHECK_THAT(words, Catch::StartsWith("a and replica  have waited for each other for 3 s: a was before the first step, "
                                      "waiting at merge_call #5 (trainer.cpp:120); b was before") &&
                        Catch::EndsWith("; the job ends if they still do after 10 s"));
  CHECK(told.finding.rows == std::vector{0, 1});
  CHECK_THAT(next_said(told).second, Catch::StartsWith("a and replica  have waited for each other for 10 s: "));

  Scene observed = circle().observes();
  CHECK_THAT(next_said(observed).second, Catch::StartsWith("a and replica  have waited for each other for 3 s: ") &&
                                             Catch::EndsWith("in one order"));
  CHECK(next_said(observed).first == never);

  // Who waits for one of a circle says the same of it: its lowest rank tells the nodes what has been told.
  Scene behind = Scene{{0, 0, 2}, 2}.timeout(10).members({1, 2}).enters(0, 9, 1).enters(1, 7).enters(2, 8, 1);
  behind.row(1).groups[9 % PhaseTable::groups_shown] = {9, 0};
  behind.row(1).groups[8 % PhaseTable::groups_shown] = {8, 0};
  CHECK(next_said(behind).second.starts_with("a and replica  have waited for each other for 3 s: a was "));
  CHECK(behind.finding.rows == std::vector{0, 1});

  // What was told of it says nothing of a network that fails once all have come.
  Scene cut_off = Scene{{0, 1}}.timeout(10).members({0, 1}).enters(0, 9, 2).enters(1, 9, 2).in_each_look(
      [](Scene& s) { s.sight(1).stall_told = s.sight(0).stall_told = true; });
  CHECK_THAT(next_said(cut_off).second, Catch::StartsWith("a is cut off: every rank has come to"));

  const auto comes_later = [](Scene& s) { s.row(1).meetings += s.looks == 500; };
  check_rules({
      {"with a short timeout, that is soon enough", circle().timeout(6), 7171, "a and replica  have waited for each "},
      {"none of the waits may have just begun", circle().in_each_look(comes_later), 3573, "a and replica  have waited"},
      {"who works alone may come", circle().phase(1, Phase::alone), never, ""},
      {"who computes may come", circle().phase(1, Phase::computing), 10242, "b is late"},
      {"who reads on waits for nobody",
       circle().in_each_look([](Scene& s) { s.row(1).progress += s.looks % 1025 == 0; }), never, ""},
  });
}
