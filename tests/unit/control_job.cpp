// The job of one process: verdicts of its meeting points, where it is, and what it gives up when it ends.
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/control/channel.hpp"
#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using lockstep::test::Table;

namespace {

/// A job of one rank.
struct Lone {
  Job job{make_local_channel(), {"replica 0"}};

  Job::Meeting meeting() { return job.make_meeting({0}, Here::current()); }
};

/// What a rank throws that announces a failure at `meeting`.
std::exception_ptr failed_at(MeetingPoint& meeting, const std::string& what) {
  try {
    meeting.fail(std::make_exception_ptr(Error{what}));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

TEST_CASE("a job knows the verdict of a group after the group has gone, also if an older one goes later") {
  Lone lone;
  auto older = lone.meeting(), newer = lone.meeting();
  CHECK(lone.job.last_known() == nullptr);
  const std::exception_ptr caught = failed_at(*older, "caught"), on_its_way = failed_at(*newer, "on its way");
  newer.reset();
  older.reset();
  REQUIRE(lone.job.known(on_its_way));
  CHECK(lone.job.known(on_its_way)->line == "lockstep: error: on its way");
  REQUIRE(lone.job.known(caught));
  CHECK(lone.job.last_known() == lone.job.known(on_its_way));
  lone.job.meeting().agree(TagKind::merge, 0, Here::current());
  CHECK(lone.job.last_known() == nullptr);
  CHECK(lone.job.known(on_its_way));
  CHECK(lone.job.known(std::make_exception_ptr(Error{"another"})) == nullptr);
  CHECK(lone.job.meetings().size() == 1);
}

TEST_CASE("a rank is where it runs, in whichever group") {
  Lone lone;
  const auto group = lone.meeting();
  CHECK_THAT(lone.job.place(), Catch::Contains("before the first step"));
  group->set_step(7, detail::RunKind::step);
  group->enter_run();
  CHECK_THAT(lone.job.place(), Catch::Contains("in step 7"));
}

TEST_CASE("a group of the same ranks has another key each time") {
  Lone lone;
  const auto one = lone.meeting(), other = lone.meeting();
  CHECK(one->members().key != other->members().key);
  CHECK(lone.job.meeting_of(one->members().key) == one.get());
}

TEST_CASE("what may never end is given up once, by the job's end alone") {
  Lone lone;
  int first = 0, gone = 0;
  const Job::GivenUp kept{lone.job, [&] { ++first; }};
  {
    const Job::GivenUp left{lone.job, [&] { ++gone; }};
  }
  lone.job.abort();
  lone.job.abort();
  CHECK(first == 1);
  CHECK(gone == 0);
}

TEST_CASE("work that a rank does alone goes on after it has met others in a group") {
  Table table;
  MeetingPoint all{make_local_channel(), {"replica 0"}, &table.rows};
  MeetingPoint group{make_local_channel(), {"replica 0"}, &table.rows, Members{{0, 1}, 9}};
  {
    const auto alone = all.working_alone();
    group.agree(TagKind::reduce, 0, Here::current());
    CHECK(table.rows.phase() == Phase::alone);
  }
  CHECK(table.rows.phase() == Phase::computing);
  group.agree(TagKind::reduce, 0, Here::current());
  CHECK(table.rows.phase() == Phase::computing);
}

TEST_CASE("a group that found no room in the row is shown once there is some") {
  Table table;
  for (std::uint64_t key = 1; key <= PhaseTable::groups_shown + 1; ++key) table.rows.open_group({{0, 1}, key});
  const std::uint64_t last = PhaseTable::groups_shown + 1;
  CHECK(table.rows.read(0).groups_not_shown > 0);
  table.rows.close_group(1);
  table.rows.enter_meeting(4, test::merge_tag(), last);
  CHECK(table.rows.read(0).met_in(last) == 4);
  CHECK(table.rows.read(0).groups_not_shown == 0);
}
