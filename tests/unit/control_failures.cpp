// How failures are announced at the meeting point, as one rank sees it: who throws what, and what is said of it.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "control_meeting_support.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/site.hpp"
#include "core/control/exceptions.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

PeerError peer_error(MeetingPoint& meeting) {
  try {
    agree(meeting);
  } catch (const PeerError& error) {
    return error;
  }
  throw std::logic_error{"no PeerError"};
}

}  // namespace

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
  CHECK(meeting.failure()->code == Error::ExitCode::peer_failed);
  CHECK(meeting.failure()->line ==
        "lockstep: replica 0 (chief:0) failed: no such file; it was before the first step, computing");
}

TEST_CASE("another rank's failure is a PeerError with its rank and words") {
  Script script{.meetings = {Meeting{.others = {{2, failing("no such file")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const PeerError error = peer_error(meeting);
  CHECK(error.rank() == 2);
  CHECK(error.cause() == Error::ExitCode::failure);
  CHECK(exit_code_of(error) == Error::ExitCode::peer_failed);
  CHECK(std::string{error.what()} == "replica 2 (worker:1) failed: no such file");
  CHECK(meeting.failure()->line == "lockstep: replica 2 (worker:1) failed: no such file");
  CHECK(meeting.failure()->code == Error::ExitCode::peer_failed);
}

TEST_CASE("a failure with a code of its own ends the job with that") {
  const auto code_after = [](Error::ExitCode cause) {
    Script script{.meetings = {Meeting{.others = {{1, failing("x", cause)}}}}};
    MeetingPoint meeting = meeting_on(script);
    CHECK_THROWS_AS(agree(meeting), PeerError);
    return meeting.failure()->code;
  };
  CHECK(code_after(Error::ExitCode::failure) == Error::ExitCode::peer_failed);
  CHECK(code_after(Error::ExitCode::checkpoint) == Error::ExitCode::checkpoint);
  CHECK(code_after(Error::ExitCode::stall) == Error::ExitCode::stall);
}

TEST_CASE("bad input is the user's to mend: no replica is blamed") {
  for (const Error::ExitCode code : {Error::ExitCode::user_input, Error::ExitCode::checkpoint}) {
    Script script{.meetings = {Meeting{.others = {{1, failing("run1/step-4: is no checkpoint", code)}}}}};
    MeetingPoint meeting = meeting_on(script);
    CHECK(exit_code_of(peer_error(meeting)) ==
          (code == Error::ExitCode::user_input ? code : Error::ExitCode::peer_failed));
    CHECK(meeting.failure()->line == "lockstep: error: run1/step-4: is no checkpoint");
    CHECK(meeting.failure()->code == code);
  }

  Script mine{.meetings = {Meeting{.others = {{1, elsewhere()}, {2, elsewhere()}}}}};
  MeetingPoint here = meeting_on(mine);
  const auto own = std::make_exception_ptr(ConfigError{"cluster.json: key 'worker'"});
  CHECK(thrown_by_fail(here, own) == own);
  CHECK(here.failure()->line == "lockstep: error: cluster.json: key 'worker'");
  CHECK(here.failure()->code == Error::ExitCode::user_input);
}

TEST_CASE("where all ranks fail alike nothing is gathered, each keeps its own exception, no replica is blamed") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("all of us " + std::string(500, 'x'));
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(script.calls == Calls{"max"});
  CHECK(meeting.failure()->line ==
        "lockstep: error: all of us " + std::string(500, 'x') + "; this was before the first step, computing");
  CHECK(meeting.failure()->code == Error::ExitCode::failure);
}

TEST_CASE("where all ranks fail each in its way, the lowest one's words are printed and each keeps its exception",
          "[B-41]") {
  Script script{.rank = 1, .meetings = {Meeting{.others = {{0, failing("first")}, {2, failing("third")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("second");
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(meeting.failure()->rank == 0);
  CHECK(meeting.failure()->line == "lockstep: error: first");
  CHECK(meeting.failure()->code == Error::ExitCode::failure);
}

TEST_CASE("where some ranks fail, the lowest of them is blamed", "[B-41]") {
  Script script{.rank = 2, .meetings = {Meeting{.others = {{0, elsewhere()}, {1, failing("first")}}}}};
  MeetingPoint meeting = meeting_on(script);
  const auto own = exception("second");
  CHECK(thrown_by_fail(meeting, own) == own);
  CHECK(meeting.failure()->line == "lockstep: replica 1 (worker:0) failed: first");
  CHECK(meeting.failure()->code == Error::ExitCode::peer_failed);
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
          meeting.set_step(40, detail::RunKind::evaluation);
          meeting.enter_run();
        }) == "in the evaluation after step 40, computing");
  const auto run_named = [&](MeetingPoint& meeting, std::uint64_t step) {
    const MeetingPoint::NamedSteps named = meeting.keep_named_steps();
    meeting.set_step(step, detail::RunKind::evaluation);
    run(meeting);
  };
  CHECK(line_after([&](MeetingPoint& meeting) {
          run_named(meeting, 40);
          meeting.enter_run();
        }) == "in step 2, computing");
  CHECK(line_after([&](MeetingPoint& meeting) {
          meeting.set_step(7, detail::RunKind::step);
          run_named(meeting, 40);
          meeting.enter_run();
        }) == "in step 7, computing");
  CHECK(line_after([&](MeetingPoint& meeting) {
          run(meeting);
          run(meeting);
          meeting.continue_after(40);
          run_named(meeting, 9);
          meeting.enter_run();
        }) == "in step 42, computing");
  CHECK(line_after([&](MeetingPoint& meeting) {
          run(meeting);
          run(meeting);
          meeting.continue_after(0);  // back to the first
          meeting.enter_run();
        }) == "in step 1, computing");
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
