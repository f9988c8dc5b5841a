// How the host waits for its GPU: on a stream whose events happen when a test says so, in time that passes with each
// look.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/base/exit_code.hpp"
#include "core/control/exceptions.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/device/device.hpp"
#include "support/child_process.hpp"
#include "support/forwarding_stream.hpp"
#include "support/phase_rows.hpp"
#include "support/scripted_channel.hpp"
#include "sync/group/device_waits.hpp"

using namespace lockstep;
using detail::DeviceWaits;

namespace {

/// Each pause takes `step`.
class SteppedClock final : public PollClock {
 public:
  Seconds now() override { return now_; }
  void pause(Seconds so_far) override {
    polled = so_far;
    now_ += step;
    ++pauses;
    at_pause();
  }

  Seconds step{0.04};
  Seconds polled{0};  ///< before the last pause
  int pauses = 0;
  std::function<void()> at_pause = [] {};

 private:
  Seconds now_{1000};
};

/// Work that is done up to the event number `done`, in the order in which events were recorded.
class SteppedStream final : public test::ForwardingStream {
 public:
  class Happened final : public Event {
   public:
    Happened(const SteppedStream& stream, int number) : stream_{stream}, number_{number} {}
    bool done() const override {
      if (stream_.fails) throw DeviceError{"the GPU is broken"};
      return number_ <= stream_.done;
    }

   private:
    const SteppedStream& stream_;
    int number_;
  };

  std::unique_ptr<Event> record() override { return std::make_unique<Happened>(*this, ++recorded); }

  int recorded = 0;
  int done = 0;
  bool fails = false;
};

/// What ends the job, in the place of its end.
struct Ended : std::exception {
  explicit Ended(std::string what) : text{std::move(what)} {}
  const char* what() const noexcept override { return text.c_str(); }
  std::string text;
};

struct Rank {
  explicit Rank(detail::DevicePatience given = {.stall_timeout = Seconds{2}}) : patience{std::move(given)} {}

  test::Table table;
  test::Script script;
  MeetingPoint meeting{
      std::make_unique<test::ScriptedChannel>(script), {"replica 0", "replica 1", "replica 2"}, &table.rows};
  SteppedStream stream;
  std::shared_ptr<SteppedClock> clock = std::make_shared<SteppedClock>();
  Error::ExitCode code = Error::ExitCode::done;
  bool is_common = false;  ///< nobody is to blame for what ended the job
  detail::DevicePatience patience;
  DeviceWaits waits{meeting,
                    stream,
                    "gpu",
                    patience,
                    [this](const std::exception_ptr& exception) {
                      code = exit_code_of(exception);
                      is_common = is_common_stall(exception);
                      throw Ended{message_of(exception)};
                    },
                    clock};

  PhaseTable::Snapshot row() const { return table.rows.read(0); }

  /// Waits for an event that is recorded now.
  void wait() { stream.record()->synchronize(); }

  void agree(int line) { meeting.agree(TagKind::merge, 0, Here::current(), std::to_string(line)); }
};

constexpr int looks_in_limit = 50;  // 2 s of 0.04 s

}  // namespace

TEST_CASE("a wait is over after its limit whenever it began, and a pause knows how long it has lasted") {
  SteppedClock clock;
  clock.step = Seconds{0.25};
  Patience patience{clock, Seconds{0.5}};
  patience.pause();
  CHECK_FALSE(patience.is_over());
  patience.pause();
  CHECK(clock.polled == Seconds{0.25});
  CHECK(patience.is_over());
}

TEST_CASE("a GPU that does not end its own work ends the job after the limit, and is shown meanwhile") {
  Rank rank;
  std::vector<Phase> seen;
  rank.clock->at_pause = [&] { seen.push_back(rank.row().phase); };
  CHECK_THROWS_WITH(rank.wait(), "its work on gpu has not ended for 2 s; it was before the first step, computing");
  CHECK(rank.code == Error::ExitCode::stall);
  CHECK_FALSE(rank.is_common);
  CHECK(rank.clock->pauses == looks_in_limit + 1);
  CHECK(seen == std::vector(seen.size(), Phase::device));
  CHECK(rank.row().phase == Phase::computing);
  CHECK_THAT(describe(PhaseTable::Snapshot{.phase = Phase::device}), Catch::EndsWith("waiting for its GPU"));

  rank.clock->at_pause = [&] { rank.stream.done = rank.stream.recorded; };
  CHECK_NOTHROW(rank.wait());
}

TEST_CASE("time in which the process was stopped is not the GPU's") {
  Rank rank;
  rank.clock->step = Seconds{100};
  rank.clock->at_pause = [&] {
    if (rank.clock->pauses == looks_in_limit / 2) rank.stream.done = 1;
  };
  CHECK_NOTHROW(rank.wait());
}

TEST_CASE("a GPU that waits for the others is in a meeting, whose number every rank counts alike") {
  Rank rank;
  rank.agree(1);
  const std::uint64_t before = rank.meeting.waits();
  bool enqueued = false;
  rank.waits.enqueue_collective(rank.meeting, [&] {
    enqueued = true;
    // The others' hosts may not have come yet.
    CHECK(rank.row().phase == Phase::meeting);
    CHECK(rank.row().meeting == before + 1);
  });
  CHECK(enqueued);
  CHECK(rank.row().phase == Phase::computing);
  rank.waits.enqueue_collective(rank.meeting, [] {});

  // The events: 1 and 3 when the GPU has come to the collectives, 2 and 4 when it is through; 5 is what is waited for.
  std::vector<std::string> seen;
  rank.clock->at_pause = [&] {
    const PhaseTable::Snapshot row = rank.row();
    seen.push_back(row.phase == Phase::device ? "own" : "in " + std::to_string(row.met_last() - before));
    ++rank.stream.done;
  };
  rank.wait();
  CHECK(seen == std::vector<std::string>{"own", "in 1", "own", "in 2", "own"});
  CHECK(rank.row().last.kind == TagKind::merge);
  rank.agree(2);
  CHECK(rank.row().meeting == before + 3);
}

TEST_CASE("a collective of some of the ranks is waited for where these meet, and forgotten with them") {
  Rank rank;
  test::Script script;
  MeetingPoint some{std::make_unique<test::ScriptedChannel>(script),
                    {"replica 0", "replica 2"},
                    &rank.table.rows,
                    Members{{0, 2}, 77}};
  rank.waits.add(some);
  some.agree(TagKind::merge, 0, Here::current(), "of some");
  rank.agree(1);
  rank.waits.enqueue_collective(some, [&] { CHECK(rank.row().group == 77); });
  rank.waits.enqueue_collective(rank.meeting, [] {});
  std::vector<std::string> seen;
  rank.clock->at_pause = [&] {
    const PhaseTable::Snapshot row = rank.row();
    seen.push_back(row.phase == Phase::device ? "own" : "in " + std::to_string(row.group));
    ++rank.stream.done;
  };
  rank.script.during_max = [&] { CHECK(rank.stream.done == 4); };
  rank.agree(2);
  CHECK(seen == std::vector<std::string>{"own", "in 77", "own", "in 0"});

  rank.waits.enqueue_collective(some, [] {});
  rank.waits.remove(some);
  rank.clock->at_pause = [] { FAIL("a wait for what was forgotten"); };
  rank.script.during_max = [] {};
  rank.agree(3);
}

TEST_CASE("a collective that no rank is late for, and that does not end, is nobody's, and ends the job later") {
  Rank rank;
  rank.agree(1);
  rank.waits.enqueue_collective(rank.meeting, [] {});
  rank.stream.done = 1;
  CHECK_THROWS_WITH(rank.wait(),
                    Catch::StartsWith("merge_call #1 (strategy_device_waits.cpp:") &&
                        Catch::Contains(") has not ended on gpu for 2 s, and no rank is late for it; this was "));
  CHECK(rank.code == Error::ExitCode::stall);
  CHECK(rank.is_common);
  CHECK(rank.clock->pauses == 2 * looks_in_limit + 1);  // 2 s more for the watchdogs
}

TEST_CASE("a collective that waits for a rank with long work of its own stalls when that gets on no more") {
  Rank rank;
  rank.agree(1);
  rank.waits.enqueue_collective(rank.meeting, [] {});
  rank.stream.done = 1;
  rank.clock->at_pause = [&] {
    if (rank.clock->pauses < 4 * looks_in_limit)
      rank.table.rows.write(1, {.progress = static_cast<std::uint64_t>(rank.clock->pauses)});
  };
  CHECK_THROWS_WITH(rank.wait(), Catch::Contains(" has not ended on gpu for 2 s, and no rank is late for it"));
  CHECK(rank.clock->pauses == 3 * (2 * looks_in_limit + 1));
}

TEST_CASE("an agreement comes after the collectives that were enqueued before it") {
  Rank rank;
  rank.agree(1);
  rank.waits.enqueue_collective(rank.meeting, [] {});
  rank.clock->at_pause = [&] { ++rank.stream.done; };
  rank.script.during_max = [&] { CHECK(rank.stream.done == 2); };
  rank.agree(2);
  CHECK(rank.clock->pauses == 2);
  CHECK_THROWS_WITH(rank.meeting.fail(std::make_exception_ptr(InvalidArgument{"of the program"})), "of the program");

  // A rank whose GPU fails in one cannot say so in an agreement, to which the others do not come.
  rank.waits.enqueue_collective(rank.meeting, [] {});
  const std::size_t calls = rank.script.calls.size();
  rank.stream.fails = true;
  const bool announces = GENERATE(false, true);
  if (announces) {
    CHECK_THROWS_AS(rank.meeting.fail(std::make_exception_ptr(InvalidArgument{"of the program"})), Ended);
  } else {
    CHECK_THROWS_AS(rank.agree(3), Ended);
  }
  CHECK(rank.script.calls.size() == calls);
  CHECK(rank.row().phase == Phase::computing);
}

TEST_CASE("work that fails is an exception of who waits, and work that one rank does alone stays announced") {
  Rank rank;
  rank.clock->at_pause = [&] { rank.stream.fails = true; };
  {
    const auto alone = rank.meeting.working_alone();
    CHECK_THROWS_WITH(rank.wait(), "the GPU is broken");
    CHECK(rank.row().phase == Phase::alone);
  }
  CHECK(rank.code == Error::ExitCode::done);
}

TEST_CASE("a stall that is only observed is told once for each, and the wait goes on") {
  std::vector<std::string> told;
  Rank rank{{.stall_timeout = Seconds{2}, .on_stall = [&](const std::string& sentence) { told.push_back(sentence); }}};
  rank.agree(1);
  rank.waits.enqueue_collective(rank.meeting, [] {});
  rank.clock->at_pause = [&] {
    if (rank.clock->pauses % (4 * looks_in_limit) == 0) ++rank.stream.done;
  };
  rank.wait();
  REQUIRE(told.size() == 3);
  CHECK_THAT(told[0], Catch::StartsWith("its work on gpu has not ended for 2 s; it was "));
  CHECK_THAT(told[1], Catch::StartsWith("merge_call #1 (") && Catch::Contains(" has not ended on gpu for 2 s"));
  CHECK(told[2] == told[0]);
  CHECK(rank.code == Error::ExitCode::done);
}

TEST_CASE("a thread beside the program's has the same limit, and shows nothing") {
  Rank rank;
  std::string said;
  std::vector<Phase> seen;
  rank.clock->at_pause = [&] { seen.push_back(rank.row().phase); };
  std::thread{[&] {
    try {
      rank.wait();
    } catch (const Ended& ended) {
      said = ended.text;
    }
  }}.join();
  CHECK(said == "its work on gpu has not ended for 2 s");
  CHECK(seen == std::vector(looks_in_limit + 1, Phase::computing));
}
