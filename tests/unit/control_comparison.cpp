// What ranks compare when they meet: who is asked for a verdict, and when.
#include <exception>
#include <stdexcept>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "control_meeting_support.hpp"
#include "core/control/channel.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/control/verdict.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Where `meeting` comes to next if it asks for the same as the last time, with another digest.
Tag next_with(const MeetingPoint& meeting, std::uint64_t compared) {
  Tag tag = meeting.last();
  ++tag.sequence;
  ++tag.count;
  tag.compared = compared;
  return tag;
}

Comparison nobody_asks_for(std::uint64_t digest) {
  return {digest,
          [](ControlChannel&, std::span<const std::string>) -> Verdict { throw std::logic_error{"nobody asked"}; }};
}

}  // namespace

TEST_CASE("what is compared costs nothing more where all hold the same") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  meeting.agree(TagKind::attest, 0, Here::current(), "w", nobody_asks_for(5));
  CHECK(meeting.last().compared == 5);
  meeting.enter_run();
  meeting.leave_run(0, Here::current(), "nothing", nobody_asks_for(7));
  CHECK(meeting.last().kind == TagKind::close);
  CHECK(meeting.last().compared == 7);
  CHECK(script.calls == Calls{"max", "max"});
}

TEST_CASE(
    "where nothing but what they hold differs, whoever asked makes the verdict, and it is sticky like any other") {
  Script script;
  MeetingPoint meeting = meeting_on(script);
  const Here here = Here::current();
  int asked = 0;
  const auto diagnose = [&](ControlChannel& channel, std::span<const std::string> replicas) {
    ++asked;
    CHECK(channel.size() == 3);
    const std::string sentence = replicas[1] + " differs";
    return Verdict{1, Error::ExitCode::replicas_differ, false, sentence,
                   std::make_exception_ptr(DriftError{sentence + ", and how", {}})};
  };
  const auto attest = [&] { meeting.agree(TagKind::attest, 0, here, "w", {5, diagnose}); };
  meeting.enter_run();
  attest();
  CHECK(asked == 0);

  script.meetings = {Meeting{.others = {{1, next_with(meeting, 7)}}}};
  CHECK_THROWS_AS(attest(), DriftError);
  CHECK(asked == 1);
  CHECK(script.calls == Calls{"max", "max", "all_gather"});
  CHECK(meeting.failure()->rank == 1);
  CHECK(meeting.failure()->code == Error::ExitCode::replicas_differ);
  CHECK(meeting.failure()->line == "lockstep: replica 1 (worker:0) differs");
  CHECK_THROWS_WITH(agree(meeting), "replica 1 (worker:0) differs, and how");
}

TEST_CASE("where some compare what they hold and others do not, there is no diagnosis: some have none") {
  const Here here = Here::current();
  const auto close = [&](MeetingPoint& meeting, std::string_view text, const Comparison& comparison) {
    meeting.enter_run();
    meeting.leave_run(0, here, text, comparison);
  };
  Script script;
  MeetingPoint meeting = meeting_on(script);
  close(meeting, {}, {});
  Tag compares = meeting.last();
  ++compares.run;
  compares.set_text("nothing, attesting w");
  compares.compared = 7;
  compares.step = 2;
  Tag compares_too = compares;
  compares_too.compared = 9;
  // One that does not compare between two that do, and hold different things.
  script.meetings = {Meeting{.others = {{0, compares}, {2, compares_too}}}};
  script.rank = 1;
  CHECK_THROWS_WITH(close(meeting, {}, {}),
                    "replica 1 (worker:0) has finished step 2 and returned nothing; replicas 0, 2 have finished "
                    "step 2 and returned nothing, attesting w");
  // And as one of those that do.
  for (Tag* const each : {&compares, &compares_too}) {
    ++each->run;
    ++each->step;
  }
  Tag does_not = compares;
  does_not.set_text({});
  does_not.compared = 0;
  script.rank = 0;
  script.meetings = {Meeting{.others = {{1, does_not}, {2, compares_too}}}};
  CHECK_THROWS_WITH(close(meeting, "nothing, attesting w", nobody_asks_for(7)),
                    Catch::StartsWith("replica 1 (worker:0) has finished step 3 and returned nothing; replicas 0, 2"));
  // Even where the texts tell nothing.
  does_not.set_text("nothing, attesting w");
  ++does_not.run;
  script.meetings = {Meeting{.others = {{1, does_not}}}};
  CHECK_THROWS_AS(close(meeting, "nothing, attesting w", nobody_asks_for(7)), MismatchError);
}

TEST_CASE("ranks at other places, with other texts, and beside one that fails are not asked for a diagnosis") {
  const auto attest = [](Tag other) {
    Script script{.meetings = {Meeting{.others = {{1, std::move(other)}}}}};
    MeetingPoint meeting = meeting_on(script);
    meeting.agree(TagKind::attest, 0, Here::current(), "w", nobody_asks_for(5));
  };
  Tag other = elsewhere();
  other.compared = 7;
  CHECK_THROWS_AS(attest(other), MismatchError);
  CHECK_THROWS_AS(attest(failing("no such file")), PeerError);

  Script script;
  MeetingPoint meeting = meeting_on(script);
  const Here here = Here::current();
  const auto again = [&] { meeting.agree(TagKind::attest, 0, here, "w", nobody_asks_for(5)); };
  again();
  other = next_with(meeting, 7);
  other.set_text("w, b");
  script.meetings = {Meeting{.others = {{1, other}}}};
  CHECK_THROWS_WITH(again(),
                    Catch::Contains("with w, b; replicas 0, 2 are at attest #2") && Catch::EndsWith(" with w"));
}
