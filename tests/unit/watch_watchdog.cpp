// The watchdog over real processes that end, stop and stay away.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/resource.h>

#include "core/base/open_line.hpp"
#include "core/base/progress_count.hpp"
#include "core/control/phase_table.hpp"
#include "core/watch/caught_signals.hpp"
#include "core/watch/kept_signals.hpp"
#include "core/watch/watchdog.hpp"
#include "support/child_process.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using lockstep::test::beat_for_ever;
using lockstep::test::CapturedStderr;
using lockstep::test::ChildProcess;
using lockstep::test::ChildRank;
using lockstep::test::eventually;
using lockstep::test::merge_tag;
using lockstep::test::Table;

namespace {

/// What a rank does that waits for signals beside its watchdog. Its status is the job's, if the watchdog ends that.
int be_watched(PhaseTable& own) {
  const Watchdog watchdog{
      own, {"a", "b", "c"}, {}, [](Error::ExitCode code, Reach) { ::_exit(static_cast<int>(code)); }};
  while (true) ::pause();
}

/// The watchdog of row 0, and what it did.
class Watched {
 public:
  using OnStall = std::function<void(const std::string&)>;

  Watched(Table& table, double stall_timeout, OnStall on_stall = {})
      : Watched{table,
                {.stall_timeout = std::chrono::duration<double>{stall_timeout}, .on_stall = std::move(on_stall)}} {}

  Watched(Table& table, WatchdogOptions options)
      : table_{table},
        watchdog_{std::in_place, table.rows, names(table.row_count), std::move(options),
                  [this](Error::ExitCode code, Reach) {
                    code_ = code;
                    ++ends_;
                  }} {}

  bool ended_the_job() {
    return eventually([&] { return ends_ > 0; });
  }
  Error::ExitCode code() const { return code_; }
  int ends() const { return ends_; }
  const std::string& line() { return stderr_.text(); }

  /// Waits until the watchdog has looked around this often.
  bool looked_around(std::uint64_t times) {
    const std::uint64_t from = table_.rows.read(0).heartbeat;
    return eventually([&] { return table_.rows.read(0).heartbeat >= from + times; });
  }

  void stop() { watchdog_.reset(); }

 private:
  static std::vector<std::string> names(int rows) {
    std::vector<std::string> names;
    for (int row = 0; row < rows; ++row) names.push_back("replica " + std::to_string(row) + " (host a)");
    return names;
  }

  Table& table_;
  CapturedStderr stderr_;
  std::atomic<Error::ExitCode> code_{Error::ExitCode::done};
  std::atomic<int> ends_{0};
  std::optional<Watchdog> watchdog_;
};

}  // namespace

TEST_CASE("a process that ends without a word is gone") {
  Table table;
  ChildRank child{table, 1, [](PhaseTable& own) {
                    own.enter_meeting(4, merge_tag());
                    own.leave_meeting();
                    return ::pause();  // until it is killed
                  }};
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 4 && table.rows.read(1).phase == Phase::computing; }));
  Watched watched{table, 1000};
  child.signal(SIGKILL);
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::peer_failed);
  CHECK(watched.line() ==
        "lockstep: replica 1 (host a) is gone: its process ended; it was before the first step, computing after "
        "merge_call #5 "
        "(trainer.cpp:120)\n");
}

TEST_CASE("a process whose end its two neighbours see at once is gone for others of its node, too") {
  Table table{5};
  ChildRank child{table, 3, beat_for_ever};
  REQUIRE(table.has_beaten(3));
  Watched watched{table, 1000};
  REQUIRE(watched.looked_around(2));
  child.signal(SIGKILL);
  CHECK(watched.ended_the_job());
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 3 (host a) is gone: its process ended"));
}

TEST_CASE("a guest sees that SIGTERM ended a process, and gives its own time to come") {
  Table table;
  ChildRank child{table, 1, beat_for_ever};
  REQUIRE(table.has_beaten(1));
  Watched watched{table, {.signals = KeptSignals::Keep::none}};
  child.signal(SIGTERM);
  CHECK(watched.ended_the_job());
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 1 (host a) is gone: SIGTERM ended it"));
}

TEST_CASE("of a process that is gone where the job has lost others before, a guest ends the job and says nothing") {
  Table table;
  ChildRank child{table, 1, [](PhaseTable&) { return 0; }};
  REQUIRE(child.wait() == 0);
  Watched watched{table, {.signals = KeptSignals::Keep::none, .has_lost_others = [] { return true; }}};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::peer_failed);
  CHECK(watched.line().empty());
}

TEST_CASE("a rank that has used up its CPU time says so, and the job ends") {
  Table table;
  CapturedStderr captured;
  ChildRank child{table, 1, [](PhaseTable& own) {
                    const rlimit limit{.rlim_cur = 60, .rlim_max = 60};
                    ::setrlimit(RLIMIT_CPU, &limit);
                    catch_cpu_limit();
                    own.ending_signal() = SIGHUP;
                    return be_watched(own);
                  }};
  REQUIRE(table.has_beaten(1));
  CHECK(table.rows.read(1).ended_by == SIGHUP);
  child.signal(SIGXCPU);
  CHECK(child.wait() == static_cast<int>(Error::ExitCode::peer_failed));
  CHECK(captured.text() ==
        "lockstep: b failed: it has used up its CPU time, 60 s (SIGXCPU, ulimit -t); it was before the first step, "
        "computing\n");
}

TEST_CASE("a process that ended before anyone watched it is gone") {
  Table table;
  ChildRank child{table, 1, [](PhaseTable&) { return 0; }};
  REQUIRE(child.wait() == 0);
  Watched watched{table, 1000};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::peer_failed);
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 1 (host a) is gone: its process ended"));
}

TEST_CASE("a process that has stopped beating has stopped") {
  Table table;
  ChildRank child{table, 2, [](PhaseTable& own) {
                    own.enter_meeting(1, merge_tag());
                    return beat_for_ever(own);
                  }};
  REQUIRE(table.has_beaten(2));
  Watched watched{table, 0.5};
  CHECK(watched.looked_around(3));
  CHECK(watched.ends() == 0);
  child.signal(SIGSTOP);
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::stall);
  CHECK(watched.line() ==
        "lockstep: replica 2 (host a) has stopped: no sign of life for 0.5 s; it was before the first step, waiting at "
        "merge_call #5 "
        "(trainer.cpp:120)\n");
}

TEST_CASE("a process that beats but stays out of a meeting is late", "[B-45]") {
  Table table;
  ChildRank waiting{table, 1, [](PhaseTable& own) {
                      own.enter_meeting(1, merge_tag());
                      return beat_for_ever(own);
                    }};
  ChildRank busy{table, 2, beat_for_ever};
  Watched watched{table, 1};
  table.rows.enter_meeting(1, merge_tag());
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::stall);
  CHECK(watched.line() ==
        "lockstep: replica 2 (host a) is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was "
        "before the first step, computing; work that only one rank does is announced by working_alone() in C++ and "
        "Python, or needs a longer stall timeout\n");
}

TEST_CASE("a stall that is only observed is told of once in each place, and does not end the job") {
  Table table;
  // Row 1 beats, and enters a meeting when it is told to by row 2.
  ChildRank other{table, 1, [](PhaseTable& own) {
                    own.enter_meeting(1, merge_tag());
                    own.leave_meeting();
                    while (true) {
                      own.beat();
                      if (own.read(2).phase == Phase::meeting && own.read(1).meeting == 1)
                        own.enter_meeting(2, merge_tag());
                      std::this_thread::sleep_for(std::chrono::milliseconds{5});
                    }
                    return 0;
                  }};
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 1; }));
  Watched watched{table, 0.4, [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); }};
  const auto says = [&](const char* words) {
    return eventually([&] { return watched.line().find(words) != std::string::npos; });
  };
  table.rows.enter_meeting(2, merge_tag());
  REQUIRE(says("replica 1 (host a) is late: merge_call #5 (trainer.cpp:120) was waited for 0.4 s; it runs"));
  CHECK(watched.looked_around(5));
  CHECK(std::ranges::count(watched.line(), '\n') == 1);
  // It goes on to the next meeting, and stalls there.
  PhaseTable last = table.of(2);
  last.enter_meeting(2, merge_tag());
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 2; }));
  other.stop();
  CHECK(says("replica 1 (host a) has stopped: no sign of life for 0.4 s"));
  CHECK(watched.ends() == 0);
}

TEST_CASE("where processes do not know each other by number, one that ended shows by its silence") {
  Table table;
  ChildRank child{table, 1, [](PhaseTable&) { return ::pause(); }, PhaseTable::Processes::unknown};
  CHECK(table.rows.read(1).process.here == 0);
  child.signal(SIGKILL);
  child.wait_for_end();
  Watched watched{table, 0.3};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == Error::ExitCode::stall);
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 1 (host a) has stopped: no sign of life for 0.3 s"));
}

TEST_CASE("the job is ended once and the line printed once, however long the end takes") {
  Table table;
  ChildRank silent{table, 1};
  Watched watched{table, 0.1};
  CHECK(watched.ended_the_job());
  CHECK(table.rows.read(0).heartbeat > 10);  // a tick is a tenth of the timeout or less
  (void)eventually([&] { return watched.ends() > 1; }, std::chrono::milliseconds{300});
  watched.stop();
  CHECK(watched.ends() == 1);
  CHECK_THAT(watched.line(), Catch::EndsWith("\n") && !Catch::Contains("\nlockstep"));
}

TEST_CASE("the second watchdog to see it prints nothing, and ends the job as well, as the first has said") {
  Table table;
  ChildRank silent{table, 1};
  const auto [code, expected] = GENERATE(std::pair{std::optional<int>{}, Error::ExitCode::stall},
                                         std::pair{std::optional{4}, Error::ExitCode::peer_failed});
  REQUIRE(table.rows.claim_report(code));
  Watched watched{table, 0.1};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == expected);
  CHECK(watched.line().empty());
}

TEST_CASE("where every rank was told to end, rank 0 says that the job was interrupted, and where") {
  for (const bool all : {true, false}) {
    Table table;
    ChildRank other{table, 1, be_watched};
    REQUIRE(table.has_beaten(1));
    PhaseTable last = table.of(2);
    last.set_terminated();
    CapturedStderr captured;
    ChildProcess chief{[&]() -> int {
      table.rows.move_to({.where = Position::Where::in_run, .step = 345});
      return be_watched(table.rows);
    }};
    REQUIRE(table.has_beaten(0));
    if (all) other.signal(SIGTERM);
    chief.signal(SIGTERM);
    CHECK(chief.wait() == -SIGTERM);
    CHECK(captured.text() == (all ? "lockstep: interrupted in step 345, computing\n" : ""));
  }
}

TEST_CASE("handlers of kept signals leave the stack of the thread alone that computes") {
  const KeptSignals kept;
  stack_t own = {};
  REQUIRE(::sigaltstack(nullptr, &own) == 0);
  CHECK_FALSE(own.ss_flags & SS_DISABLE);
  struct sigaction terminate = {};
  REQUIRE(::sigaction(SIGTERM, nullptr, &terminate) == 0);
  CHECK(terminate.sa_flags & SA_ONSTACK);
}

TEST_CASE("a program's own answer to SIGINT stays its own, and so does the one that nohup or a shell gave it") {
  static volatile std::sig_atomic_t interrupts;
  interrupts = 0;
  for (void (*own)(int) : {+[](int) { interrupts = interrupts + 1; }, SIG_IGN}) {
    void (*const before)(int) = std::signal(SIGINT, own);
    {
      const KeptSignals kept;
      std::raise(SIGINT);
      CHECK_FALSE(kept.has_come());
      std::raise(SIGTERM);
      CHECK(kept.has_come());
      kept.heed();
    }
    CHECK(std::signal(SIGINT, before) == own);
  }
  {
    void (*const own)(int) = [](int) {};
    void (*const before)(int) = std::signal(SIGTERM, own);
    const KeptSignals nothing{KeptSignals::Keep::none};
    CHECK(nothing.descriptor() == -1);
    CHECK(std::signal(SIGTERM, before) == own);
  }
  CHECK(interrupts == 1);
}

TEST_CASE("Ctrl-C ends a process without mpirun by its signal, after a line of its own") {
  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(1));
  memory.take_over();
  PhaseTable table{std::move(memory), 1, 0};
  CapturedStderr captured;
  for (const int signal : {SIGINT, SIGTERM}) {
    ChildProcess alone{[&]() -> int {
      share_open_line(&table.open_line());
      table.open_line() = static_cast<std::uint32_t>(OpenLine::open);  // as begin_open_line in a process that is new
      const Watchdog watchdog{table, {"a"}, {}, [](Error::ExitCode, Reach) { ::_exit(98); }};
      while (true) ::pause();
    }};
    const auto beats = table.read(0).heartbeat;
    REQUIRE(eventually([&] { return table.read(0).heartbeat > beats; }));
    alone.signal(signal);
    CHECK(alone.wait() == -signal);
  }
  // The line is printed once for a table, which the second process finds as the first left it.
  CHECK(captured.text() == "\nlockstep: interrupted before the first step, computing\n");
}

TEST_CASE("a watchdog shows the progress of its process to the others") {
  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(1));
  memory.take_over();
  PhaseTable table{std::move(memory), 1, 0};
  const Watchdog watchdog{table, {"a"}, {}, [](Error::ExitCode, Reach) { ::_exit(98); }};
  detail::count_progress();
  CHECK(eventually([&] { return table.read(0).progress == detail::progress_count(); }));
}

TEST_CASE("a process that saves what it has made has a moment to end by itself") {
  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(1));
  memory.take_over();
  PhaseTable table{std::move(memory), 1, 0};
  CapturedStderr captured;
  const auto status = [&](bool in_time) {
    ChildProcess alone{[&]() -> int {
      std::atomic<bool> asked{false};
      const KeptSignals kept;
      {
        const Watchdog watchdog{
            table, {"a"}, {.on_interrupted = [&] { asked = true; }}, [](Error::ExitCode, Reach) { ::_exit(98); }};
        while (!asked || !in_time) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      }
      return 75;
    }};
    const auto beats = table.read(0).heartbeat;
    REQUIRE(eventually([&] { return table.read(0).heartbeat > beats; }));
    alone.signal(SIGTERM);
    return alone.wait();
  };
  CHECK(status(true) == 75);
  CHECK(captured.text().empty());
  CHECK(status(false) == -SIGTERM);
  CHECK(captured.text() == "lockstep: interrupted before the first step, computing\n");
}

TEST_CASE("SIGTERM still ends a watched process, with its status") {
  Table table;
  ChildRank child{table, 1, be_watched};
  REQUIRE(table.has_beaten(1));
  child.signal(SIGTERM);
  CHECK(child.wait() == -SIGTERM);
  CHECK(table.rows.read(1).terminated);
}

TEST_CASE("SIGTERM ends a process also while its watchdog ends, and after that") {
  Table table;
  const auto status_after = [&](bool during) {
    ChildRank child{table, 1, [&](PhaseTable& own) {
                      {
                        const Watchdog watchdog{own, {"a", "b", "c"}, {}, [](Error::ExitCode, Reach) { ::_exit(98); }};
                        if (during) ::raise(SIGTERM);
                      }
                      if (!during) ::raise(SIGTERM);
                      return 0;
                    }};
    return child.wait();
  };
  for (int attempt = 0; attempt < 20; ++attempt) REQUIRE(status_after(true) == -SIGTERM);
  CHECK(status_after(false) == -SIGTERM);
}

TEST_CASE("a survivor that gets SIGTERM says first who is gone") {
  Table table;
  ChildRank dying{table, 1};
  CapturedStderr captured;
  ChildRank survivor{table, 2, be_watched};
  REQUIRE(table.has_beaten(2));
  survivor.stop();
  dying.signal(SIGKILL);
  dying.wait_for_end();
  survivor.signal(SIGTERM);
  survivor.signal(SIGCONT);
  CHECK(survivor.wait() == static_cast<int>(Error::ExitCode::peer_failed));
  CHECK_THAT(captured.text(), Catch::StartsWith("lockstep: b is gone"));
}
