// What a watchdog makes of what it sees, in virtual time: who is named, and in which look.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "control/judgement.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using lockstep::test::merge_tag;

namespace {

using Seconds = WatchedJob::Seconds;
using Process = Observation::Process;

constexpr int never = 20000;

/// A job whose ranks a, b, c, d compute and beat. A test changes what is seen, and looks. A second has 1024 ticks, so
/// that sums of them are exact: 0.3 s are over in look 308, and not in look 307.
class Scene {
 public:
  using Change = std::function<void(Scene&)>;

  /// `lowest` says who shares a node, as for NodeMap; `row` is the rank that looks.
  explicit Scene(std::vector<int> lowest, int row = 0)
      : job{.names = {"a", "b", "c", "d"},
            .nodes = NodeMap{lowest},
            .row = row,
            .stall_timeout = Seconds{1},
            .tick = Seconds{1} / 1024},
        state{job, std::vector<PhaseTable::Snapshot>(lowest.size())} {
    for (int other = 0; other < job.nodes.ranks(); ++other) {
      const bool tells = job.nodes.same_node(other, row) && other != row;
      seen.rows.push_back(
          {.seen = {.phase = Phase::computing}, .process = tells ? Process::running : Process::unknown});
    }
    seen.took = job.tick;
  }

  Scene& ends(int row) {
    return with([row](Scene& s) { s.sight(row).process = Process::ended; });
  }
  Scene& terminates(int row) {
    return with([row](Scene& s) { s.row(row).terminated = true; });
  }
  Scene& phase(int row, Phase phase) {
    return with([=](Scene& s) { s.row(row).phase = phase; });
  }
  Scene& told() {
    return with([](Scene& s) { s.seen.since_told = Seconds{0}; });
  }
  Scene& observes() {
    return with([](Scene& s) { s.job.only_observes = true; });
  }
  Scene& saves() {
    return with([](Scene& s) { s.job.saves_at_end = true; });
  }
  Scene& reported() {
    return with([](Scene& s) { s.seen.reported = true; });
  }
  Scene& by_parent() {
    return with([](Scene& s) { s.seen.told_by_parent = true; });
  }
  Scene& untold(int row) {
    return with([row](Scene& s) { s.sight(row).process = Process::unknown; });
  }
  Scene& refuses(int row) {
    return with([row](Scene& s) { s.sight(row).refused = true; });
  }
  Scene& heard_here(int row) {
    return with([row](Scene& s) { s.sight(row).missed_datagrams = 0; });
  }
  /// So many calls to the GPU's driver have not returned yet.
  Scene& in_calls(std::uint64_t calls = 1) {
    return with([calls](Scene& s) { s.seen.calls = {.begun = 7 + calls, .ended = 7}; });
  }
  /// The last collective that the rank's GPU was given.
  Scene& gave(int row, std::uint64_t meeting) { return enters(row, meeting).phase(row, Phase::computing); }
  Scene& took(Seconds time) {
    return with([time](Scene& s) { s.seen.took = time; });
  }
  Scene& timeout(double seconds) {
    job.stall_timeout = Seconds{seconds};
    state = WatchState{job, std::vector<PhaseTable::Snapshot>(seen.rows.size())};
    return *this;
  }
  Scene& with(const Change& change) {
    change(*this);
    return *this;
  }

  /// From the look after this one.
  Scene& falls_silent(int row, int after = 0) {
    beats_until[row] = after;
    return *this;
  }
  Scene& enters(int row, std::uint64_t meeting) {
    return phase(row, Phase::meeting).with([=](Scene& s) {
      s.row(row).meeting = meeting;
      s.row(row).last = merge_tag();
    });
  }
  /// In a group of some of the ranks.
  Scene& enters(int row, std::uint64_t group, std::uint64_t number) {
    return phase(row, Phase::meeting).with([=](Scene& s) {
      s.row(row).group = group;
      s.row(row).groups[group % PhaseTable::groups_shown] = {group, number};
      s.row(row).last = merge_tag();
    });
  }
  Scene& members(std::vector<int> rows) {
    return with([rows = std::move(rows)](Scene& s) { s.seen.members = rows; });
  }
  Scene& in_each_look(Change change) {
    each_look = std::move(change);
    return *this;
  }
  /// The rank that looks comes out of an agreement in each look up to this one.
  Scene& agrees_until(int look) {
    return in_each_look([look](Scene& s) { s.row(s.job.row).passed += s.looks <= look; });
  }

  /// A tick later. What is said then, or nothing. Hosts do not answer.
  std::string look() {
    ++looks;
    for (int row = 0; row < job.nodes.ranks(); ++row)
      if (!beats_until.contains(row) || looks <= beats_until[row]) ++this->row(row).heartbeat;
    if (seen.since_told) *seen.since_told += job.tick;
    if (each_look) each_look(*this);
    seen.host_answers.clear();
    Judgement judged = judge_look(job, seen, state);
    for (; judged.unknown_host; ++knocks) {
      seen.host_answers[job.nodes.node_of(*judged.unknown_host)] = false;
      judged = judge_look(job, seen, state);
    }
    state = std::move(judged.state);
    finding = judged.failure ? *judged.failure : judged.stall.value_or(Finding{});
    if (judged.stall)
      for (const int row : finding.rows) sight(row).stall_told = true;
    switch (judged.last_act) {
      case LastAct::none: return judged.lost_heartbeats.value_or(finding.sentence);
      case LastAct::save: return "saves";
      case LastAct::say_and_end: return "says that it was interrupted";
      case LastAct::end: return "ends";
    }
    return {};
  }

  Observation::Row& sight(int row) { return seen.rows[static_cast<std::size_t>(row)]; }
  PhaseTable::Snapshot& row(int row) { return sight(row).seen; }

  WatchedJob job;
  Observation seen;
  WatchState state;
  std::map<int, int> beats_until;
  Change each_look;
  int looks = 0;
  int knocks = 0;
  Finding finding;  ///< of the last look
};

/// The look in which something is said, and its first words.
using Said = std::pair<int, std::string>;

Said next_said(Scene& scene) {
  while (scene.looks < never)
    if (std::string words = scene.look(); !words.empty()) return {scene.looks, words};
  return {never, ""};
}

struct Rule {
  const char* rule;
  Scene scene;
  int look;
  const char* words;
};

void check(std::vector<Rule> rules) {
  for (Rule& rule : rules) {
    const auto [look, words] = next_said(rule.scene);
    CAPTURE(rule.rule, words);
    CHECK(look == rule.look);
    CHECK_THAT(words, Catch::StartsWith(rule.words));
  }
}

}  // namespace

TEST_CASE("ranks of a node are gone, stopped or late after these times", "[B-45]") {
  const Scene pair{{0, 0}};
  const auto job = [&] { return pair; };
  const double no_end = std::numeric_limits<double>::infinity();
  check({
      {"gone, at once", job().ends(1), 1, "b is gone: its process ended; it was before the first step, computing"},
      {"gone by a signal", job().ends(1).with([](Scene& s) { s.sight(1).seen.ended_by = SIGSEGV; }), 1,
       "b is gone: SIGSEGV ended it; it was before"},
      {"gone for memory", job().ends(1).with([](Scene& s) { s.sight(1).killed = "the kernel killed it"; }), 1,
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
    const bool was_paused = judge_look(scene.job, scene.seen, scene.state).was_paused;
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
  CHECK_FALSE(judge_look(alone.job, alone.took(Seconds{3600}).seen, alone.state).was_paused);
  CHECK_FALSE(judge_look(alone.job, alone.took(Seconds{0.4}).seen, alone.state).was_paused);
}

TEST_CASE("a rank that is inside its GPU's driver is stuck after these times, unless its GPU may wait for others") {
  const auto alone = [] { return Scene{{0}}.in_calls(); };
  const auto three = [] { return Scene{{0, 0, 0}}.in_calls(); };
  check({
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
  check({
      {"two", job().enters(0, 2).enters(1, 1).enters(2, 1).enters(3, 2), 2051,
       "error: merge_call #5 (trainer.cpp:120) has not ended for 1 s on replicas 1, 2, and no rank is late for it"},
      {"in different ones", job().enters(0, 3).enters(1, 1).enters(2, 2).enters(3, 3), 2051, "b is late"},
      {"another has not come", job().enters(0, 2).enters(1, 1).enters(2, 1), 1026, "d is late"},
  });
}

TEST_CASE("a rank is late only in groups that it belongs to, and as often as it has met there") {
  const auto job = [] { return Scene{{0, 0, 0}}; };
  const auto two_hosts = [] { return Scene{{0, 1, 2}}.members({0, 2}).enters(0, 9, 2); };
  check({
      {"it has met there less often", job().members({0, 2}).enters(2, 9, 1).phase(2, Phase::computing).enters(0, 9, 2),
       1026, "c is late: merge_call #5 (trainer.cpp:120) was waited for 1 s"},
      {"it has not made the group yet", job().members({0, 2}).enters(0, 9, 1), 1026, "c is late"},
      {"it has come", job().members({0, 2}).enters(0, 9, 2).enters(2, 9, 2), never, ""},
      {"it does not tell",
       job().members({0, 2}).enters(0, 9, 2).with([](Scene& s) { s.row(2).has_more_groups = true; }), never, ""},
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

TEST_CASE("ranks of other nodes are gone, late or out of reach after these times", "[B-45]") {
  const auto two = [](int row = 0) { return Scene{{0, 1}, row}; };
  const auto host_of_two = [] { return Scene{{0, 1, 1}}; };
  check({
      {"late", two().enters(0, 1), 1026, "b is late"},
      {"its neighbour beats", host_of_two().falls_silent(1), 1025, "b has stopped"},
      {"its neighbour beat less than half the timeout ago", host_of_two().falls_silent(2).falls_silent(1, 514), 1025,
       "c has stopped"},
      {"its neighbour beat half the timeout ago", host_of_two().falls_silent(2).falls_silent(1, 513), 1025,
       "b cannot be reached: no sign of life from any rank of its host for 1 s; it was before"},
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
  const auto misses = [](int row) { return [row](Scene& s) { ++*s.sight(row).missed_datagrams; }; };
  // Rank b's go to d, which is heard of in one look of several.
  const auto carried_in_each = [](int looks) {
    return Scene{{0, 0, 2, 2}, 2}.falls_silent(1).falls_silent(3).in_each_look(
        [looks](Scene& s) { s.row(3).heartbeat += s.looks % looks == 0; });
  };
  check({
      {"patience_with_mute: ten times the timeout", two().falls_silent(1).in_each_look(agrees_1000_times), 11251,
       "b does not come: merge_call #5 (trainer.cpp:120) was waited for 10 s, and no heartbeats of it get through"},
      {"not mute yet: a quarter of the timeout", two().timeout(2).falls_silent(1).terminates(1).agrees_until(3), 315,
       "b is gone: SIGTERM ended it"},
      {"mute", two().timeout(1).falls_silent(1).terminates(1).agrees_until(3), never, ""},
      {"mute, and a firewall refuses", two().falls_silent(1).refuses(1).agrees_until(3), never, ""},
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
      {"turn: 0.5 s for the lower node", two(1).heard_here(0).in_each_look(misses(0)), 50 + 513,
       "heartbeats between b and a"},
      {"ticks_of_a_silent_carrier: 4", carried_in_each(5), 1025, "b has stopped"},
      {"and not 5", carried_in_each(6), never, ""},
      {"a carrier that leaves", carried_in_each(1).phase(3, Phase::leaving), never, ""},
  });
}

TEST_CASE("a rank that was told to end looks around, saves, says so and ends after these times") {
  const auto told = [](std::vector<int> lowest, int row = 0) { return Scene{std::move(lowest), row}.told(); };
  check({
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
  check({
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
