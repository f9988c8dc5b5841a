// A job in which a watchdog looks around, in virtual time, and tables of what it then says.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/watch/judgement.hpp"
#include "support/phase_rows.hpp"

namespace lockstep::test {

/// More looks than any case takes.
inline constexpr int never = 20000;

/// A job whose ranks a, b, c and so on compute and beat. A test changes what is seen, and looks. A second has 1024
/// ticks, so that sums of them are exact: 0.3 s are over in look 308, and not in look 307.
class Scene {
 public:
  using Change = std::function<void(Scene&)>;
  using Process = Observation::Process;
  using Seconds = WatchedJob::Seconds;

  /// `lowest` says who shares a node, as for NodeMap; `row` is the rank that looks.
  explicit Scene(std::vector<int> lowest, int row = 0)
      : job{.names = letters(lowest.size()),
            .nodes = NodeMap{lowest},
            .row = row,
            .stall_timeout = Seconds{1},
            .tick = Seconds{1} / 1024},
        rows(lowest.size(), {.phase = Phase::computing}),
        state{std::vector<Observation::Row>(lowest.size())} {
    for (int other = 0; other < job.nodes.ranks(); ++other) {
      const bool tells = job.nodes.same_node(other, row) && other != row;
      seen.rows.emplace_back().process = tells ? Process::running : Process::unknown;
      seen.fresh.push_back(other);
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
  /// Somebody does, from the look after this one on, for the rows of all ranks.
  Scene& wishes() {
    return with([](Scene& s) { ++s.seen.wishes; });
  }
  Scene& lost(int row) {
    return with([row](Scene& s) { s.seen.lost = row; });
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
    return with([row](Scene& s) { s.sight(row).is_heard_here = true; });
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
  /// For something that was started before.
  Scene& waits_at(int row, std::uint64_t number) {
    return with([=](Scene& s) { s.row(row).waits_at = number; });
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
    Judgement judged = judge();
    if (judged.wishes && !wished_at) wished_at = looks;
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

  /// What is made of the rows as they are.
  Judgement judge() {
    seen.own = row(job.row);
    for (int each = 0; each < job.nodes.ranks(); ++each) sight(each).look(row(each), seen.own);
    seen.read = [this](int each) { return row(each); };
    seen.host_answers = [this](int) {
      ++knocks;
      return false;
    };
    return judge_look(job, seen, state);
  }

  Observation::Row& sight(int row) { return seen.rows[static_cast<std::size_t>(row)]; }
  PhaseTable::Snapshot& row(int row) { return rows[static_cast<std::size_t>(row)]; }

  WatchedJob job;
  std::vector<PhaseTable::Snapshot> rows;
  Observation seen;
  WatchState state;
  std::map<int, int> beats_until;
  Change each_look;
  int looks = 0;
  int knocks = 0;
  std::optional<int> wished_at;  ///< the first look after which this rank wished for the rows of all
  Finding finding;               ///< of the last look

 private:
  static std::vector<std::string> letters(std::size_t count) {
    std::vector<std::string> names;
    for (std::size_t row = 0; row < count; ++row) names.emplace_back(1, static_cast<char>('a' + row));
    return names;
  }
};

/// The look in which something is said, and its first words.
using Said = std::pair<int, std::string>;

inline Said next_said(Scene& scene) {
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

inline void check_rules(std::vector<Rule> rules) {
  for (Rule& rule : rules) {
    const auto [look, words] = next_said(rule.scene);
    CAPTURE(rule.rule, words);
    CHECK(look == rule.look);
    CHECK_THAT(words, Catch::StartsWith(rule.words));
  }
}

}  // namespace lockstep::test
