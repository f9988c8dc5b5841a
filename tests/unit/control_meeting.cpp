// The meeting point as one rank sees it; what the other ranks do is written down in a script.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/control/meeting_point.hpp>

#include "control/phase_table.hpp"
#include "control_meeting_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::exception_ptr exception(const std::string& what) {
  return std::make_exception_ptr(std::runtime_error{what});
}

/// Announces `error` and returns what that threw.
std::exception_ptr thrown_by_fail(MeetingPoint& meeting, std::exception_ptr error) {
  try {
    meeting.fail(std::move(error));
  } catch (...) {
    return std::current_exception();
  }
}

PeerError peer_error(MeetingPoint& meeting) {
  try {
    agree(meeting);
  } catch (const PeerError& error) {
    return error;
  }
  throw std::logic_error{"no PeerError"};
}

}  // namespace

TEST_CASE("an agreement costs one max and nothing else, however long its text") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  agree(meeting);
  agree(meeting, std::string(10'000, 'x'));
  CHECK(script.calls == Calls{"max", "max"});
  CHECK(meeting.meetings() == 2);
  CHECK_FALSE(meeting.failure().has_value());
}

TEST_CASE("where tags differ they are gathered, once, and judged") {
  Script script{.meetings = {Meeting{.others = {{2, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  CHECK(script.calls == Calls{"max", "all_gather"});
  REQUIRE(meeting.failure());
  CHECK(meeting.failure()->rank == 2);
  CHECK(meeting.failure()->code == ExitCode::mismatch);
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

  CHECK(meeting.failure().has_value());  // until then it can be asked for
  meeting.enter_run();
  CHECK_FALSE(meeting.failure().has_value());
  agree(meeting);
  meeting.leave_run(0, Here::current());
  CHECK(script.calls.size() == before.size() + 2);
}

TEST_CASE("outside of runs a verdict is over once it is thrown") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(agree(meeting), MismatchError);
  agree(meeting);
  CHECK_FALSE(meeting.failure().has_value());
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

TEST_CASE("a rank that leaves the run early is found by the agreed end of the run") {
  Script script{.meetings = {Meeting{.others = {{2, elsewhere(TagKind::close)}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.enter_run();
  CHECK_THROWS_WITH(agree(meeting), Catch::StartsWith("replica 2 (worker:1) has finished step 1; replicas 0, 1 are"));
  CHECK_THROWS_AS(meeting.leave_run(0, Here::current()), MismatchError);
}

TEST_CASE("a rank that fails throws its own exception and is named to the others") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("no such file");
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(script.calls == Calls{"max", "all_gather"});
  REQUIRE(script.gathered.size() == 1);
  CHECK(script.gathered.front().kind == TagKind::error);
  CHECK(script.gathered.front().kept_text() == "no such file");
  REQUIRE(meeting.failure());
  CHECK(meeting.failure()->exception == own);
  CHECK(meeting.failure()->rank == 0);
  CHECK(meeting.failure()->code == ExitCode::peer_failed);
  CHECK(meeting.failure()->line ==
        "lockstep: replica 0 (chief:0) failed: no such file; it was before the first step, computing");
}

TEST_CASE("another rank's failure is a PeerError with its rank and words") {
  Script script{.meetings = {Meeting{.others = {{2, failing("no such file")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const PeerError error = peer_error(meeting);
  CHECK(error.rank() == 2);
  CHECK(error.cause() == ExitCode::failure);
  CHECK(exit_code_of(error) == ExitCode::peer_failed);
  CHECK(std::string{error.what()} == "replica 2 (worker:1) failed: no such file");
  CHECK(meeting.failure()->line == "lockstep: replica 2 (worker:1) failed: no such file");
  CHECK(meeting.failure()->code == ExitCode::peer_failed);
}

TEST_CASE("a failure with a code of its own ends the job with that") {
  const auto code_after = [](ExitCode cause) {
    Script script{.meetings = {Meeting{.others = {{1, failing("x", cause)}}}}};
    MeetingPoint meeting = meeting_on(script);
    CHECK_THROWS_AS(agree(meeting), PeerError);
    return meeting.failure()->code;
  };
  CHECK(code_after(ExitCode::failure) == ExitCode::peer_failed);
  CHECK(code_after(ExitCode::checkpoint) == ExitCode::checkpoint);
  CHECK(code_after(ExitCode::stall) == ExitCode::stall);
}

TEST_CASE("bad input is the user's to mend: no replica is blamed") {
  Script script{.meetings = {Meeting{.others = {{1, failing("cluster.json: key 'worker'", ExitCode::user_input)}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK(exit_code_of(peer_error(meeting)) == ExitCode::user_input);
  CHECK(meeting.failure()->line == "lockstep: error: cluster.json: key 'worker'");
  CHECK(meeting.failure()->code == ExitCode::user_input);

  Script mine{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint here = meeting_on(mine);
  const auto own = std::make_exception_ptr(ConfigError{"cluster.json: key 'worker'"});
  CHECK(thrown_by_fail(here, own) == own);
  CHECK(here.failure()->line == "lockstep: error: cluster.json: key 'worker'");
  CHECK(here.failure()->code == ExitCode::user_input);
}

TEST_CASE("where all ranks fail alike nothing is gathered, each keeps its own exception, no replica is blamed") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("all of us " + std::string(500, 'x'));
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(script.calls == Calls{"max"});
  CHECK(meeting.failure()->line ==
        "lockstep: error: all of us " + std::string(500, 'x') + "; this was before the first step, computing");
  CHECK(meeting.failure()->code == ExitCode::failure);
}

TEST_CASE("where all ranks fail each in its way, the lowest one's words are printed and each keeps its exception",
          "[B-41]") {
  Script script{.rank = 1, .meetings = {Meeting{.others = {{0, failing("first")}, {2, failing("third")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("second");
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(meeting.failure()->rank == 0);
  CHECK(meeting.failure()->line == "lockstep: error: first");
  CHECK(meeting.failure()->code == ExitCode::failure);
}

TEST_CASE("where some ranks fail, the lowest of them is blamed", "[B-41]") {
  Script script{.rank = 2, .meetings = {Meeting{.others = {{0, elsewhere()}, {1, failing("first")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("second");
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(meeting.failure()->line == "lockstep: replica 1 (worker:0) failed: first");
  CHECK(meeting.failure()->code == ExitCode::peer_failed);
}

TEST_CASE("a message longer than a tag follows from the rank that has it") {
  const std::string text(3000, 'x');
  Script theirs{.meetings = {Meeting{.others = {{2, failing(text)}}, .broadcast = text}}};
  MeetingPoint meeting = meeting_on(theirs);
  CHECK(std::string{peer_error(meeting).what()} == "replica 2 (worker:1) failed: " + text);
  CHECK(theirs.calls == Calls{"max", "all_gather", "broadcast from 2"});

  Script mine{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint here = meeting_on(mine);
  (void)thrown_by_fail(here, exception(text));
  CHECK(mine.calls == Calls{"max", "all_gather", "broadcast from 0"});
  CHECK(mine.sent == text);
  CHECK(here.failure()->line ==
        "lockstep: replica 0 (chief:0) failed: " + text + "; it was before the first step, computing");
}

TEST_CASE("a message as long as a tag holds takes no broadcast; one without end is cut") {
  const std::string fits(Tag::text_capacity, 'x');
  Script script{.meetings = {Meeting{.others = {{2, failing(fits)}}}}};
  MeetingPoint meeting = meeting_on(script);
  CHECK(std::string{peer_error(meeting).what()} == "replica 2 (worker:1) failed: " + fits);
  CHECK(script.calls == Calls{"max", "all_gather"});

  Script endless{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint here = meeting_on(endless);
  (void)thrown_by_fail(here, exception(std::string(100'000, 'x')));
  CHECK(endless.sent == std::string(4096, 'x'));
}

TEST_CASE("a message is one line, whatever was thrown") {
  CHECK(message_of(exception("first\nsecond\n")) == "first second");
  CHECK(message_of(std::make_exception_ptr(7)) == "an exception of an unknown type");
  Script script;
  MeetingPoint meeting = meeting_on(script);
  CHECK_THROWS_AS(meeting.fail(std::make_exception_ptr(7)), int);
  CHECK(meeting.failure()->line ==
        "lockstep: error: an exception of an unknown type; this was before the first step, computing");
}

TEST_CASE("an exception that leaves a run is announced once, on the way out of the innermost") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.enter_run();
  meeting.enter_run();
  const auto own = exception("deep");
  CHECK_THROWS_WITH(meeting.leave_failed_run(own), "deep");
  CHECK_THROWS_WITH(meeting.leave_failed_run(own), "deep");
  CHECK(meeting.depth() == 0);
  CHECK(script.calls == Calls{"max", "all_gather"});
}

TEST_CASE("a rank that fails says so outside of all depths, so that two that fail alike agree") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.enter_run();
  (void)thrown_by_fail(meeting, exception("x"));
  REQUIRE(script.gathered.size() == 1);
  CHECK(script.gathered.front().depth == 0);
  CHECK(script.gathered.front().site_text().empty());
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

TEST_CASE("a line about a failure names the step and what the rank did last in it") {
  const auto line_after = [](const std::function<void(MeetingPoint&)>& steps) {
    Script script;
    MeetingPoint meeting = meeting_on(script);
    steps(meeting);
    script.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}};
    (void)thrown_by_fail(meeting, exception("x"));
    return meeting.failure()->line.substr(std::string{"lockstep: replica 0 (chief:0) failed: x; it was "}.size());
  };
  const Here here = Here::current();
  const std::string place = site_of(here);
  const auto run = [&](MeetingPoint& meeting) {
    meeting.enter_run(here);
    meeting.leave_run(0, here);
  };
  CHECK(line_after([&](MeetingPoint& meeting) {
          run(meeting);
          meeting.enter_run(here);
        }) == "in step 2, computing (" + place + ")");
  CHECK(line_after([&](MeetingPoint& meeting) {
          meeting.enter_run();
          meeting.agree(TagKind::merge, 0, here);
        }) == "in step 1, computing after merge_call #1 (" + place + ")");
  CHECK(line_after(run) == "after step 1, computing (" + place + ")");
  const Here other = Here::current();
  CHECK(line_after([&](MeetingPoint& meeting) {
          run(meeting);
          meeting.enter_run(other);
        }) == "in step 2, computing (" + site_of(other) + ")");
  CHECK(line_after([&](MeetingPoint& meeting) {
          run(meeting);
          meeting.enter_run();
        }) == "in step 2, computing");
  CHECK(line_after([&](MeetingPoint& meeting) {
          meeting.set_step(40, RunKind::evaluation);
          meeting.enter_run();
        }) == "in the evaluation after step 40, computing");
}

TEST_CASE("only what the program did wrong is told with its place") {
  const auto line_of = [](std::exception_ptr error) {
    Script script;
    MeetingPoint meeting = meeting_on(script);
    (void)thrown_by_fail(meeting, std::move(error));
    return meeting.failure()->line;
  };
  const std::string place = "; this was before the first step, computing";
  CHECK(line_of(exception("x")) == "lockstep: error: x" + place);
  CHECK(line_of(std::make_exception_ptr(InvalidArgument{"x"})) == "lockstep: error: x" + place);
  CHECK(line_of(std::make_exception_ptr(ContextError{"x"})) == "lockstep: error: x" + place);
  CHECK(line_of(std::make_exception_ptr(ConfigError{"x"})) == "lockstep: error: x");
  CHECK(line_of(std::make_exception_ptr(Error{"metrics file: disk full"})) ==
        "lockstep: error: metrics file: disk full");
}

TEST_CASE("messages call the ranks what they were told last") {
  Script script{.meetings = {Meeting{.others = {{1, elsewhere()}}}}};
  MeetingPoint meeting = meeting_on(script);
  meeting.set_names({"a", "b", "c"});
  CHECK_THROWS_WITH(agree(meeting), Catch::StartsWith("b is at"));
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
  CHECK(meeting.failure()->code == ExitCode::failure);
}
