// Stalls that are told of and do not end the job.
#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "control/phase_table.hpp"
#include "control/watchdog.hpp"
#include "support/child_process.hpp"
#include "unit/control_heartbeats_support.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;
using lockstep::test::merge_tag;
using lockstep::test::Ranks;
using lockstep::test::Table;

namespace {

/// What watchdogs say of stalls.
class Observations {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& sentence) {
      const std::lock_guard lock{mutex_};
      said_.push_back(sentence);
    };
  }
  std::vector<std::string> said() const {
    const std::lock_guard lock{mutex_};
    return said_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> said_;
};

}  // namespace

TEST_CASE("a stall that is only observed is told of once, and the end of a process still ends the job") {
  Table table;
  // Row 1 beats, and enters a meeting when it is told to by row 2.
  ChildProcess other{[&]() -> int {
    PhaseTable own = table.of(1);
    own.enter_meeting(1, merge_tag());
    own.leave_meeting();
    while (true) {
      own.beat();
      if (own.read(2).phase == Phase::meeting && own.read(1).meeting == 1) own.enter_meeting(2, merge_tag());
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    }
  }};
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 1; }));
  Observations observed;
  std::atomic<int> ends{0};
  std::atomic<ExitCode> code{ExitCode::done};
  const Watchdog watchdog{table.rows,
                          {"a", "b", "c"},
                          {.stall_timeout = std::chrono::duration<double>{0.4}, .on_stall = observed.sink()},
                          [&](ExitCode with, Reach) {
                            code = with;
                            ++ends;
                          }};
  const auto looks = [&](std::uint64_t times) {
    const auto from = table.rows.read(0).heartbeat;
    return eventually([&] { return table.rows.read(0).heartbeat >= from + times; });
  };
  const auto says = [&](std::size_t count) { return eventually([&] { return observed.said().size() >= count; }); };

  table.rows.enter_meeting(2, merge_tag());
  REQUIRE(says(1));
  CHECK_THAT(observed.said()[0], Catch::StartsWith("b is late: merge_call #5 (trainer.cpp:120) was waited for 0.4 s"));
  other.stop();
  REQUIRE(looks(30));  // thrice the timeout
  CHECK(observed.said().size() == 1);
  // It goes on to the next meeting, and stalls there.
  PhaseTable last = table.of(2);
  last.enter_meeting(2, merge_tag());
  other.signal(SIGCONT);
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 2; }));
  other.stop();
  REQUIRE(says(2));
  CHECK_THAT(observed.said()[1], Catch::Contains(" has stopped: no sign of life for 0.4 s"));
  CHECK(ends == 0);
  other.signal(SIGKILL);
  REQUIRE(eventually([&] { return ends > 0; }));
  CHECK(code == ExitCode::peer_failed);
}

TEST_CASE("of all nodes that observe a stall one speaks, in their order") {
  Ranks ranks{{0, 1, 2, 2}};
  for (const int other : {1, 2, 3}) REQUIRE(ranks.hears(0, other));
  for (const int other : {0, 2, 3}) REQUIRE(ranks.hears(1, other));
  Observations first, second;
  const auto watch = [&](int rank, Observations& observed) {
    return std::make_unique<Watchdog>(
        ranks.table(rank), std::vector<std::string>{"a", "b", "c", "d"},
        WatchdogOptions{.stall_timeout = std::chrono::duration<double>{0.5}, .on_stall = observed.sink()},
        [](ExitCode, Reach) { FAIL("the job was ended"); }, &ranks.beats(rank));
  };
  // Node 2 falls silent as a whole, and does not answer: its addresses are this host's own.
  const auto lower = watch(0, first);
  const auto higher = watch(1, second);
  REQUIRE(eventually([&] { return !first.said().empty(); }));
  const auto from = ranks.table(1).read(1).heartbeat;
  REQUIRE(eventually([&] { return ranks.table(1).read(1).heartbeat > from + 30; }));
  REQUIRE(first.said().size() == 1);
  CHECK_THAT(first.said()[0], Catch::StartsWith("c cannot be reached: no sign of life from any rank of its host"));
  CHECK(second.said().empty());
}
