// The meeting point as one rank sees it; what the other ranks do is written down in a script.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "control_meeting_support.hpp"
#include "core/control/channel.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("an agreement costs one max and nothing else, however long its text") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  agree(meeting, std::string(10'000, 'x'));
  CHECK(script.calls == Calls{"max", "max"});
  CHECK(meeting.meetings() == 2);
  CHECK_FALSE(meeting.failure());
}

TEST_CASE("where tags differ they are gathered, once, and judged") {
  Script script{.meetings = {Meeting{.others = {{2, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  CHECK(script.calls == Calls{"max", "all_gather"});
  REQUIRE(meeting.failure());
  CHECK(meeting.failure()->rank == 2);
  CHECK(meeting.failure()->code == Error::ExitCode::mismatch);
  CHECK_THAT(meeting.failure()->line,
             Catch::StartsWith("lockstep: replica 2 (worker:1) is at reduction #1 (other.cpp:7); replicas 0, 1 are at "
                               "merge_call #1 (control_meeting.cpp:"));
  CHECK_THROWS_WITH(std::rethrow_exception(meeting.failure()->exception),
                    meeting.failure()->line.substr(std::string{"lockstep: "}.size()));
}

TEST_CASE("a difference in any one of the ranks is found, also where its digest is not the largest") {
  for (int rank = 0; rank < 3; ++rank) {
    for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {  // digests above and below the real rank's
      Tag other = elsewhere();
      other.sequence = sequence;
      Script script{.rank = rank, .meetings = {Meeting{.others = {{(rank + 1) % 3, other}}}}};
      MeetingPoint meeting = meeting_on(script);
      REQUIRE_THROWS_AS(agree(meeting), MismatchError);
    }
  }
}

TEST_CASE("two questions in an agreement are answered on every rank, by the same max") {
  for (unsigned said = 0; said < 16; ++said) {
    const Answers mine{(said & 1) != 0, (said & 2) != 0}, others{(said & 4) != 0, (said & 8) != 0};
    CAPTURE(mine, others);
    Script script{.others_say = others};
    MeetingPoint meeting = meeting_on(script);
    CHECK(meeting.agree_any(TagKind::input, 0, Here::current(), "text", mine) ==
          Answers{mine[0] || others[0], mine[1] || others[1]});
    CHECK(script.calls == Calls{"max"});
  }
}

TEST_CASE("a question hides no difference, and a rank that asks none meets one that does") {
  for (const bool mine : {false, true}) {
    for (std::uint64_t sequence = 0; sequence < 20; ++sequence) {
      Tag other = elsewhere();
      other.sequence = sequence;
      Script script{.meetings = {Meeting{.others = {{1, other}}}}, .others_say = {!mine, mine}};
      MeetingPoint meeting = meeting_on(script);
      REQUIRE_THROWS_AS(meeting.agree_any(TagKind::input, 0, Here::current(), {}, {mine, !mine}), MismatchError);
      REQUIRE_THROWS_AS(meeting.fail(exception("no such file")), std::runtime_error);
      CHECK_NOTHROW(agree(meeting));
    }
  }
}

TEST_CASE("a wish to stop travels with the end of a run, from any rank to all") {
  for (const bool mine : {false, true}) {
    for (const bool others : {false, true}) {
      CAPTURE(mine, others);
      Script script{.others_say = {others, false}};
      MeetingPoint meeting = meeting_on(script);
      if (mine) meeting.request_stop();
      meeting.enter_run();
      CHECK_FALSE(meeting.stop_requested());
      meeting.leave_run(0, Here::current());
      CHECK(meeting.stop_requested() == (mine || others));
      CHECK(script.calls == Calls{"max"});
      script.others_say = {};
      meeting.enter_run();
      meeting.leave_run(0, Here::current());
      CHECK(meeting.stop_requested() == (mine || others));
    }
  }
}

TEST_CASE("numbers brought after an agreement cost a max and a broadcast, and where there are none the max alone") {
  Script script{.rank = 1};
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  CHECK(meeting.first_brought({}).empty());
  CHECK(script.calls == Calls{"max", "max"});
  const std::vector<std::int64_t> numbers{3, 1, 4};
  CHECK(meeting.first_brought(numbers) == numbers);
  CHECK(script.calls == Calls{"max", "max", "max", "broadcast from 1"});
  CHECK(meeting.meetings() == 3);
}

TEST_CASE("a tag says where the rank is: run, sequence in it, depth, strategy, site and text") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  agree(meeting);
  meeting.enter_run();
  agree(meeting);
  meeting.leave_run(0, Here::current());
  meeting.enter_run();
  meeting.enter_run();
  script.meetings = {Meeting{.others = {{1, elsewhere()}}}};
  const Here here = Here::current();
  CHECK_THROWS_AS(meeting.agree(TagKind::reduce, 4, here, "f32[3]"), MismatchError);
  REQUIRE(script.gathered.size() == 1);
  const Tag& tag = script.gathered.front();
  CHECK(tag.kind == TagKind::reduce);
  CHECK(tag.run == 2);
  CHECK(tag.sequence == 1);  // counted afresh in each outermost run
  CHECK(tag.depth == 2);
  CHECK(tag.strategy == 4);
  CHECK(tag.site_text() == "control_meeting.cpp:" + std::to_string(here.line()));
  CHECK(tag.kept_text() == "f32[3]");
}

TEST_CASE("within a run a verdict is thrown again, without communication, until the outermost run is over",
          "[B-35][B-44]") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.enter_run();
  meeting.enter_run();
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  const Calls before = script.calls;
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  CHECK_THROWS_AS(meeting.leave_run(0, Here::current()), MismatchError);
  CHECK(meeting.depth() == 1);
  CHECK_THROWS_AS(meeting.leave_failed_run(exception("what replica code made of it")), MismatchError);
  CHECK(meeting.depth() == 0);
  CHECK(script.calls == before);

  CHECK(meeting.failure());  // until then it can be asked for
  meeting.enter_run();
  CHECK_FALSE(meeting.failure());
  agree(meeting);
  meeting.leave_run(0, Here::current());
  CHECK(script.calls.size() == before.size() + 2);
}

TEST_CASE("outside of runs a verdict is over once it is thrown") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  agree(meeting);
  CHECK_FALSE(meeting.failure());
}

TEST_CASE("after a verdict a rank counts on from whichever is furthest") {
  Tag ahead = elsewhere();
  ahead.run = 5;
  ahead.sequence = 9;
  Script script{.meetings = {Meeting{.others = {{1, ahead}}}, Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  REQUIRE(script.gathered.size() == 2);
  CHECK(script.gathered[1].run == 5);
  CHECK(script.gathered[1].sequence == 10);
  meeting.enter_run();
  agree(meeting);
  CHECK(meeting.last().run == 6);
  CHECK(meeting.last().sequence == 1);
}

TEST_CASE("the end of the job is the same wherever a rank comes from, and it may come again") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  meeting.enter_run();
  agree(meeting);
  agree(meeting);
  script.meetings = {Meeting{.others = {{1, elsewhere()}}}, Meeting{}};
  const Here here = Here::current();
  CHECK_THROWS_AS(meeting.leave_job(here, false), MismatchError);
  CHECK(meeting.last().kind == TagKind::leave);
  CHECK(meeting.last().depth == 0);
  CHECK(meeting.last().run == 0);
  CHECK(meeting.last().sequence == 1);
  const std::uint64_t digest = meeting.last().digest();
  CHECK_FALSE(meeting.leave_job(here, false));
  CHECK(meeting.last().digest() == digest);
  CHECK(meeting.leave_job(here, true));
  script.others_say = {true};
  CHECK(meeting.leave_job(here, false));
  CHECK(script.calls == Calls{"max", "max", "max", "max", "all_gather", "max", "max", "max"});
}

TEST_CASE("a rank that calls exit leaves the job with those that are at its end, and has failed for all others") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  const Here here = Here::current();
  Tag leaving;
  leaving.kind = TagKind::leave;
  Tag exiting = leaving;
  exiting.set_text("called exit(3) before the end of the job; it was after step 7, computing");
  exiting.cause = Error::ExitCode{3};
  script.meetings = {Meeting{}, Meeting{.others = {{1, leaving}, {2, exiting}}}, Meeting{.others = {{1, elsewhere()}}},
                     Meeting{.others = {{2, exiting}}}, Meeting{.others = {{2, exiting}}}};
  meeting.exit_job(here, "called exit(0) before the end of the job", Error::ExitCode::peer_failed);
  meeting.exit_job(here, "called exit(0) before the end of the job", Error::ExitCode::peer_failed);
  CHECK_FALSE(meeting.failure());
  CHECK_THROWS_WITH(meeting.exit_job(here, "called exit(2) before the end of the job", Error::ExitCode{2}),
                    Catch::StartsWith("called exit(2) before"));
  CHECK(meeting.failure()->code == Error::ExitCode{2});
  CHECK_THAT(meeting.failure()->line,
             Catch::StartsWith("lockstep: replica 0 (chief:0) called exit(2) before the end of "
                               "the job; it was before the first step, computing"));
  CHECK_THROWS_WITH(agree(meeting),
                    "replica 2 (worker:1) called exit(3) before the end of the job; it was after step "
                    "7, computing");
  CHECK(meeting.failure()->code == Error::ExitCode{3});
  CHECK_FALSE(meeting.leave_job(here, false));
}

TEST_CASE("a rank that leaves the run early is found by the agreed end of the run") {
  Script script{.meetings = {Meeting{.others = {{2, elsewhere(TagKind::close)}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.enter_run();
  CHECK_THROWS_WITH(agree(meeting), Catch::StartsWith("replica 2 (worker:1) has finished step 1; replicas 0, 1 are"));
  CHECK_THROWS_AS(meeting.leave_run(0, Here::current()), MismatchError);
}

TEST_CASE("calls are counted by kind, in a run and over the job outside of runs") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  const auto count_of = [&](TagKind kind) {
    meeting.agree(kind, 0, Here::current());
    return meeting.last().count;
  };
  CHECK(count_of(TagKind::compare) == 1);
  CHECK(count_of(TagKind::save) == 1);
  for (int run = 0; run < 2; ++run) {
    meeting.enter_run();
    CHECK(count_of(TagKind::merge) == 1);
    CHECK(count_of(TagKind::reduce) == 1);
    CHECK(count_of(TagKind::merge) == 2);
    meeting.leave_run(0, Here::current());
  }
  CHECK(count_of(TagKind::save) == 2);
}

TEST_CASE(
    "after a verdict calls are counted on from the highest count of their kind, and others from where they were") {
  Tag ahead = elsewhere(TagKind::save);
  ahead.count = 7;
  Script script{.meetings = {Meeting{.others = {{1, ahead}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  const auto count_of = [&](TagKind kind) {
    meeting.agree(kind, 0, Here::current());
    return meeting.last().count;
  };
  CHECK(count_of(TagKind::save) == 8);
  CHECK(count_of(TagKind::merge) == 2);
}

TEST_CASE("while a rank waits for the others its row says where, and afterwards that it computes") {
  PhaseTable table{SharedMemory::create(PhaseTable::bytes_for(1)), 1, 0};
  Script script;
  std::vector<PhaseTable::Snapshot> seen;
  script.during_max = [&] { seen.push_back(table.read(0)); };
  MeetingPoint meeting = meeting_on(script, &table);
  agree(meeting);
  agree(meeting);
  (void)meeting.first_brought({});
  REQUIRE(seen.size() == 3);
  for (const std::size_t i : {1, 2}) {
    CHECK(seen[i].phase == Phase::meeting);
    CHECK(seen[i].meeting == i + 1);
    CHECK_THAT(describe(seen[i]),
               Catch::StartsWith("was before the first step, waiting at merge_call #2 (control_meeting.cpp:"));
  }
  CHECK(table.read(0).phase == Phase::computing);
  script.meetings = {Meeting{.others = {{1, elsewhere()}}}};
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  CHECK(table.read(0).phase == Phase::computing);
}

TEST_CASE("while a rank works alone its row says so, until it meets the others") {
  PhaseTable table{SharedMemory::create(PhaseTable::bytes_for(1)), 1, 0};
  Script script;
  script.during_max = [&] { CHECK(table.read(0).phase == Phase::meeting); };
  MeetingPoint meeting = meeting_on(script, &table);
  {
    const auto alone = meeting.working_alone();
    CHECK(table.read(0).phase == Phase::alone);
    agree(meeting);
  }
  CHECK(table.read(0).phase == Phase::computing);
  MeetingPoint without_phases = meeting_on(script);
  (void)without_phases.working_alone();
}

TEST_CASE("a rank by itself agrees with itself") {
  MeetingPoint meeting{make_local_channel(), {"replica 0"}};
  CHECK(meeting.size() == 1);
  agree(meeting);
  CHECK(thrown_by_fail(meeting, exception("x")) != nullptr);
  CHECK_THAT(meeting.failure()->line, Catch::StartsWith("lockstep: error: x; this was before the first step, "));
  CHECK(meeting.failure()->code == Error::ExitCode::failure);
}
