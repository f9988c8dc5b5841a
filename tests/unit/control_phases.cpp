// The phase table between processes.
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using lockstep::test::ChildRank;
using lockstep::test::merge_tag;
using lockstep::test::Table;

TEST_CASE("a row written in one process is read in another") {
  Table table;
  CHECK(table.rows.read(1).phase == Phase::absent);
  table.rows.enter(Phase::alone);
  ChildRank child{table, 1, [](PhaseTable& own) {
                    own.beat();
                    own.beat();
                    own.enter_meeting(17, merge_tag());
                    return own.read(0).phase == Phase::alone && own.row() == 1 ? 0 : 1;
                  }};
  CHECK(child.wait() == 0);
  const PhaseTable::Snapshot seen = table.rows.read(1);
  CHECK(seen.phase == Phase::meeting);
  CHECK(seen.process.here == child.id());
  CHECK(seen.heartbeat == 2);
  CHECK(seen.meeting == 17);
  CHECK(seen.last.kind == TagKind::merge);
  CHECK(seen.last.count == 5);
  CHECK(seen.last.site_text() == "trainer.cpp:120");
  CHECK(table.rows.read(0).process.here == ::getpid());
  CHECK(table.rows.read(2).phase == Phase::absent);
}

TEST_CASE("a row tells how often its rank has met in each of its groups, unless there are too many") {
  Table table;
  constexpr std::uint64_t first = 11, last = first + PhaseTable::groups_shown;
  ChildRank child{table, 1, [](PhaseTable& own) {
                    for (std::uint64_t group = first; group <= last; ++group) own.open_group({{1, 0}, group});
                    own.enter_meeting(17, merge_tag());
                    own.leave_meeting();
                    own.enter_meeting(5, merge_tag(), first);
                    own.close_group(first + 1);
                    return own.members_of(last) == std::vector{1, 0} && own.members_of(first + 1).empty() ? 0 : 1;
                  }};
  CHECK(child.wait() == 0);
  PhaseTable::Snapshot seen = table.rows.read(1);
  CHECK(seen.group == first);
  CHECK(seen.met_last() == 5);
  CHECK(seen.met_in(0) == 17);
  CHECK(seen.met_in(first) == 5);
  CHECK(seen.met_in(first + 2) == 0);
  CHECK(seen.passed == 17);
  // It may have met there.
  CHECK(seen.groups_not_shown > 0);
  CHECK_FALSE(seen.met_in(last));
  seen.groups_not_shown = 0;
  CHECK(seen.met_in(last) == 0);
}

TEST_CASE("a rank has come to what it has started, and shows a wait for it where it shows nothing else") {
  Table table;
  PhaseTable& own = table.rows;
  const auto seen = [&] { return own.read(0); };
  own.open_group({{0, 1}, 11});
  own.come_to(3, 11);
  own.come_to(1, 11);
  CHECK(seen().met_in(11) == 3);
  CHECK(seen().phase == Phase::computing);
  own.show_wait(2, merge_tag(), 11);
  CHECK(seen().phase == Phase::meeting);
  CHECK(seen().group == 11);
  CHECK(seen().met_last() == 2);
  CHECK(seen().met_in(11) == 3);
  own.show_wait(3, merge_tag(), 11);  // another thread's
  own.hide_wait(3, 11);
  CHECK(seen().met_last() == 2);
  own.hide_wait(2, 11);
  CHECK(seen().phase == Phase::computing);
  own.enter(Phase::alone);
  std::thread{[&] { own.show_wait(2, merge_tag(), 11); }}.join();
  CHECK(seen().phase == Phase::alone);
  own.show_wait(2, merge_tag(), 11);
  CHECK(seen().phase == Phase::meeting);
  own.hide_wait(2, 11);
  CHECK(seen().phase == Phase::alone);
  own.enter_meeting(4, merge_tag(), 11);
  CHECK(seen().met_last() == 4);
  own.enter_meeting(2, merge_tag(), 11);  // for its GPU
  CHECK(seen().met_last() == 2);
  CHECK(seen().met_in(11) == 4);
}

TEST_CASE("a row in words") {
  Table table;
  const auto words = [&] { return describe(table.rows.read(0)); };
  CHECK(describe(table.rows.read(1)) == "has not started");
  CHECK(words() == "was before the first step, computing");
  table.rows.enter_meeting(1, merge_tag());
  CHECK(words() == "was before the first step, waiting at merge_call #5 (trainer.cpp:120)");
  table.rows.leave_meeting();
  CHECK(words() == "was before the first step, computing after merge_call #5 (trainer.cpp:120)");
  table.rows.enter(Phase::alone);
  CHECK(words() == "was before the first step, working alone after merge_call #5 (trainer.cpp:120)");
  table.rows.enter(Phase::leaving);
  CHECK(words() == "was leaving the job");
}

TEST_CASE("a row in words names the step, and a call only if it was made there") {
  Table table;
  const auto words = [&] { return describe(table.rows.read(0)); };
  Position position{.where = Position::Where::in_run, .step = 5, .since = 1};
  std::string_view{"trainer.cpp:33"}.copy(position.site, Position::site_capacity);
  table.rows.enter_meeting(1, merge_tag());
  table.rows.leave_meeting();
  table.rows.move_to(position);
  CHECK(words() == "was in step 5, computing (trainer.cpp:33)");
  table.rows.enter_meeting(2, merge_tag());
  CHECK(words() == "was in step 5, waiting at merge_call #5 (trainer.cpp:120)");
  table.rows.leave_meeting();
  CHECK(words() == "was in step 5, computing after merge_call #5 (trainer.cpp:120)");
  Tag close;
  close.kind = TagKind::close;
  table.rows.enter_meeting(3, close);
  CHECK(words() == "was at the end of step 5, waiting for the others");
  table.rows.leave_meeting();
  position.where = Position::Where::after_run;
  position.since = 3;
  table.rows.move_to(position);
  table.rows.enter(Phase::alone);
  CHECK(words() == "was after step 5, working alone (trainer.cpp:33)");
  // A program without steps has phases, with names or without.
  Position phase{.where = Position::Where::in_phase, .since = 3};
  table.rows.enter(Phase::computing);
  table.rows.move_to(phase);
  CHECK(words() == "was computing");
  std::string_view{"assembling"}.copy(phase.site, Position::site_capacity);
  table.rows.move_to(phase);
  CHECK(words() == "was in 'assembling', computing");
  table.rows.enter_meeting(4, merge_tag());
  CHECK(words() == "was in 'assembling', waiting at merge_call #5 (trainer.cpp:120)");
}

TEST_CASE("one process of all claims the report") {
  Table table;
  ChildRank child{table, 1, [](PhaseTable& own) { return own.claim_report() ? 0 : 1; }};
  CHECK(child.wait() == 0);
  CHECK_FALSE(table.rows.claim_report());
}
