// The phase table between processes, and the watchdog over real processes that end, stop and stay away.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/control/phase_table.hpp>
#include <lockstep/control/watchdog.hpp>

#include "support/child_process.hpp"

using namespace lockstep;
using lockstep::test::CapturedStderr;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;

namespace {

constexpr int rows = 3;

Tag merge_tag() {
  Tag tag;
  tag.kind = TagKind::merge;
  tag.sequence = 5;
  tag.depth = 2;
  std::string_view{"trainer.cpp:120"}.copy(tag.site, Tag::site_capacity);
  return tag;
}

/// A table of which this process writes row 0, and children the others.
struct Table {
  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(::rows));
  std::vector<SharedMemory> opened;
  PhaseTable rows;

  Table() : rows{own_row()} {}

  PhaseTable own_row() {
    for (int row = 0; row < ::rows; ++row)
      opened.push_back(SharedMemory::open(memory.handle(), PhaseTable::bytes_for(::rows)));
    memory.take_over();
    return of(0);
  }

  /// For the process that writes `row`: once in each.
  PhaseTable of(int row, PhaseTable::Processes processes = PhaseTable::Processes::known) {
    return PhaseTable{std::move(opened[static_cast<std::size_t>(row)]), ::rows, row, processes};
  }

  bool has_started(int row) const {
    return eventually([&] { return rows.read(row).phase != Phase::absent; });
  }
};

[[noreturn]] void beat_for_ever(PhaseTable& table) {
  while (true) {
    table.beat();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

/// The watchdog of row 0, and what it did.
class Watched {
 public:
  Watched(Table& table, double stall_timeout)
      : table_{table},
        watchdog_{std::in_place, table.rows,
                  std::vector<std::string>{"replica 0 (host a)", "replica 1 (host a)", "replica 2 (host a)"},
                  WatchdogOptions{.stall_timeout = std::chrono::duration<double>{stall_timeout}},
                  [this](ExitCode code) {
                    code_ = code;
                    ++ends_;
                  }} {}

  bool ended_the_job() {
    return eventually([&] { return ends_ > 0; });
  }
  ExitCode code() const { return code_; }
  int ends() const { return ends_; }
  const std::string& line() { return stderr_.text(); }

  /// Waits until the watchdog has looked around this often.
  bool looked_around(std::uint64_t times) {
    const std::uint64_t from = table_.rows.read(0).heartbeat;
    return eventually([&] { return table_.rows.read(0).heartbeat >= from + times; });
  }

  void stop() { watchdog_.reset(); }

 private:
  Table& table_;
  CapturedStderr stderr_;
  std::atomic<ExitCode> code_{ExitCode::done};
  std::atomic<int> ends_{0};
  std::optional<Watchdog> watchdog_;
};

}  // namespace

TEST_CASE("shared memory is the same in every process that opens it, and then has neither name nor proof") {
  constexpr std::size_t bytes = 10'000;
  for (const auto create : {SharedMemory::create, SharedMemory::create_named}) {
    SharedMemory memory = create(bytes);
    const SharedMemory::Handle handle = memory.handle();
    auto* const mine = static_cast<volatile unsigned char*>(memory.data());
    ChildProcess child{[&] {
      const SharedMemory opened = SharedMemory::open(handle, bytes);
      if (opened.data() == memory.data()) return 1;
      static_cast<volatile unsigned char*>(opened.data())[bytes - 1] = 7;
      return 0;
    }};
    CHECK(child.wait() == 0);
    memory.take_over();
    CHECK(mine[bytes - 1] == 7);
    CHECK(std::all_of(mine, mine + bytes - 1, [](unsigned char byte) { return byte == 0; }));
    CHECK_THROWS_AS(SharedMemory::open(handle, bytes), CommError);

    SharedMemory moved = std::move(memory);
    CHECK(memory.data() == nullptr);
    memory = std::move(moved);
    CHECK(static_cast<unsigned char*>(memory.data())[bytes - 1] == 7);
  }
}

TEST_CASE("only shared memory made with a name has one, until all have opened it") {
  CHECK(std::string{SharedMemory::create(100).handle().name}.empty());
  SharedMemory memory = SharedMemory::create_named(100);
  const std::string path = std::string{"/dev/shm"} + memory.handle().name;
  CHECK(std::filesystem::exists(path));
  memory.take_over();
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("memory that is gone, of another size, or another process's is not opened") {
  SharedMemory::Handle gone;
  {
    const SharedMemory memory = SharedMemory::create(100);
    gone = memory.handle();
    CHECK_THROWS_WITH(SharedMemory::open(gone, 101), Catch::Contains("not of the size agreed on"));
    SharedMemory::Handle other = gone;
    ++other.proof;
    CHECK_THROWS_WITH(SharedMemory::open(other, 100), Catch::Contains("another process's"));
    CHECK(SharedMemory::open(gone, 100).data() != nullptr);
  }
  CHECK_THROWS_WITH(SharedMemory::open(gone, 100),
                    Catch::StartsWith("/proc/" + std::to_string(::getpid()) + "/fd/") && Catch::Contains(": "));
  CHECK_THROWS_AS(SharedMemory::open({}, 100), CommError);
}

TEST_CASE("a row written in one process is read in another") {
  Table table;
  CHECK(table.rows.read(1).phase == Phase::absent);
  table.rows.enter(Phase::alone);
  ChildProcess child{[&] {
    PhaseTable own = table.of(1);
    own.beat();
    own.beat();
    own.enter_meeting(17, merge_tag());
    return own.read(0).phase == Phase::alone && own.row() == 1 ? 0 : 1;
  }};
  CHECK(child.wait() == 0);
  const PhaseTable::Snapshot seen = table.rows.read(1);
  CHECK(seen.phase == Phase::meeting);
  CHECK(seen.process == child.id());
  CHECK(seen.heartbeat == 2);
  CHECK(seen.meeting == 17);
  CHECK(seen.last.kind == TagKind::merge);
  CHECK(seen.last.sequence == 5);
  CHECK(seen.last.depth == 2);
  CHECK(seen.last.site_text() == "trainer.cpp:120");
  CHECK(table.rows.read(0).process == ::getpid());
  CHECK(table.rows.read(2).phase == Phase::absent);
}

TEST_CASE("a row in words") {
  Table table;
  const auto words = [&] { return describe(table.rows.read(0)); };
  CHECK(describe(table.rows.read(1)) == "has not started");
  CHECK(words() == "was computing after the start of the job");
  table.rows.enter_meeting(1, merge_tag());
  CHECK(words() == "was waiting at merge_call #5 (trainer.cpp:120)");
  table.rows.leave_meeting();
  CHECK(words() == "was computing after merge_call #5 (trainer.cpp:120)");
  table.rows.enter(Phase::alone);
  CHECK(words() == "was working alone after merge_call #5 (trainer.cpp:120)");
  table.rows.enter(Phase::leaving);
  CHECK(words() == "was leaving the job");
}

TEST_CASE("one process of all claims the report") {
  Table table;
  ChildProcess child{[&] { return table.of(1).claim_report() ? 0 : 1; }};
  CHECK(child.wait() == 0);
  CHECK_FALSE(table.rows.claim_report());
}

TEST_CASE("a process that ends without a word is gone") {
  Table table;
  ChildProcess child{[&] {
    PhaseTable own = table.of(1);
    own.enter_meeting(4, merge_tag());
    own.leave_meeting();
    return ::pause();  // until it is killed
  }};
  REQUIRE(eventually([&] { return table.rows.read(1).meeting == 4 && table.rows.read(1).phase == Phase::computing; }));
  Watched watched{table, 1000};
  child.signal(SIGKILL);
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == ExitCode::peer_failed);
  CHECK(watched.line() ==
        "lockstep: replica 1 (host a) is gone: its process ended; it was computing after merge_call #5 "
        "(trainer.cpp:120)\n");
}

TEST_CASE("a process that has stopped beating has stopped") {
  Table table;
  ChildProcess child{[&]() -> int {
    PhaseTable own = table.of(2);
    own.enter_meeting(1, merge_tag());
    beat_for_ever(own);
  }};
  REQUIRE(eventually([&] { return table.rows.read(2).heartbeat > 0; }));
  Watched watched{table, 0.5};
  CHECK(watched.looked_around(3));
  CHECK(watched.ends() == 0);
  child.signal(SIGSTOP);
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == ExitCode::stall);
  CHECK(watched.line() ==
        "lockstep: replica 2 (host a) has stopped: no sign of life for 0.5 s; it was waiting at merge_call #5 "
        "(trainer.cpp:120)\n");
}

TEST_CASE("a process that beats but stays out of a meeting is late") {
  Table table;
  ChildProcess waiting{[&]() -> int {
    PhaseTable own = table.of(1);
    own.enter_meeting(1, merge_tag());
    beat_for_ever(own);
  }};
  ChildProcess busy{[&]() -> int {
    PhaseTable own = table.of(2);
    beat_for_ever(own);
  }};
  REQUIRE((table.has_started(1) && table.has_started(2)));
  Watched watched{table, 1};
  table.rows.enter_meeting(1, merge_tag());
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == ExitCode::stall);
  CHECK(watched.line() ==
        "lockstep: replica 2 (host a) is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was "
        "computing after the start of the job\n");
}

TEST_CASE("a process that works alone is not late, and one that nobody waits for is not either") {
  Table table;
  ChildProcess alone{[&]() -> int {
    PhaseTable own = table.of(1);
    own.enter(Phase::alone);
    beat_for_ever(own);
  }};
  REQUIRE(eventually([&] { return table.rows.read(1).phase == Phase::alone; }));
  Watched watched{table, 0.8};
  table.rows.enter_meeting(1, merge_tag());
  CHECK(watched.looked_around(25));  // 1.25 s
  // In one meeting after another, none of them for long (but together): the wait is counted afresh.
  for (std::uint64_t meeting = 2; meeting < 9; ++meeting) {
    table.rows.enter_meeting(meeting, merge_tag());
    CHECK(watched.looked_around(3));
  }
  table.rows.leave_meeting();
  CHECK(watched.ends() == 0);
  CHECK(watched.line().empty());
}

TEST_CASE("a process that left the job properly may end") {
  Table table;
  ChildProcess child{[&] {
    PhaseTable own = table.of(1);
    while (own.read(0).phase != Phase::alone) own.beat();
    own.enter(Phase::leaving);
    return 0;
  }};
  REQUIRE(table.has_started(1));
  Watched watched{table, 0.5};
  CHECK(watched.looked_around(2));
  table.rows.enter(Phase::alone);
  child.wait_for_end();
  CHECK(watched.looked_around(20));
  CHECK(watched.ends() == 0);
  CHECK(watched.line().empty());
}

TEST_CASE("a process that a signal told to end is nobody's fault") {
  Table table;
  ChildProcess child{[&]() -> int {
    PhaseTable own = table.of(1);
    const Watchdog watchdog{own, {"a", "b", "c"}, {}, [](ExitCode) { ::_exit(98); }};
    return ::pause();
  }};
  REQUIRE(eventually([&] { return table.rows.read(1).heartbeat > 0; }));
  Watched watched{table, 0.5};
  child.signal(SIGTERM);
  child.wait_for_end();
  CHECK(table.rows.read(1).terminated);
  CHECK(watched.looked_around(20));
  CHECK(watched.ends() == 0);
  CHECK(watched.line().empty());
}

TEST_CASE("where processes do not know each other by number, one that ended shows by its silence") {
  Table table;
  ChildProcess child{[&]() -> int {
    PhaseTable own = table.of(1, PhaseTable::Processes::unknown);
    own.beat();
    return ::pause();
  }};
  REQUIRE(table.has_started(1));
  CHECK(table.rows.read(1).process == 0);
  child.signal(SIGKILL);
  child.wait_for_end();
  Watched watched{table, 0.3};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == ExitCode::stall);
  CHECK_THAT(watched.line(), Catch::StartsWith("lockstep: replica 1 (host a) has stopped: no sign of life for 0.3 s"));
}

TEST_CASE("a timeout without end never ends the job") {
  Table table;
  ChildProcess silent{[&]() -> int {
    PhaseTable own = table.of(1);
    return ::pause();
  }};
  REQUIRE(table.has_started(1));
  for (const double timeout : {1e30, std::numeric_limits<double>::infinity()}) {
    Watched watched{table, timeout};
    CHECK(watched.looked_around(5));
    CHECK(watched.ends() == 0);
  }
}

TEST_CASE("the job is ended once and the line printed once, however long the end takes") {
  Table table;
  ChildProcess silent{[&]() -> int {
    PhaseTable own = table.of(1);
    return ::pause();
  }};
  REQUIRE(table.has_started(1));
  Watched watched{table, 0.1};
  CHECK(watched.ended_the_job());
  (void)eventually([&] { return watched.ends() > 1; }, std::chrono::milliseconds{300});
  watched.stop();
  CHECK(watched.ends() == 1);
  CHECK_THAT(watched.line(), Catch::EndsWith("\n") && !Catch::Contains("\nlockstep"));
}

TEST_CASE("the second watchdog to see it prints nothing, and ends the job as well") {
  Table table;
  ChildProcess silent{[&]() -> int {
    PhaseTable own = table.of(1);
    return ::pause();
  }};
  REQUIRE(table.has_started(1));
  REQUIRE(table.rows.claim_report());
  Watched watched{table, 0.1};
  CHECK(watched.ended_the_job());
  CHECK(watched.code() == ExitCode::stall);
  CHECK(watched.line().empty());
}

TEST_CASE("SIGTERM still ends a watched process, with its status") {
  Table table;
  ChildProcess child{[&]() -> int {
    PhaseTable own = table.of(1);
    const Watchdog watchdog{own, {"a", "b", "c"}, {}, [](ExitCode) { ::_exit(98); }};
    return ::pause();
  }};
  REQUIRE(eventually([&] { return table.rows.read(1).heartbeat > 0; }));
  child.signal(SIGTERM);
  CHECK(child.wait() == -SIGTERM);
}

TEST_CASE("SIGTERM ends a process also while its watchdog ends, and after that") {
  Table table;
  const auto status_after = [&](bool during) {
    ChildProcess child{[&] {
      PhaseTable own = table.of(1);
      {
        const Watchdog watchdog{own, {"a", "b", "c"}, {}, [](ExitCode) { ::_exit(98); }};
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
  ChildProcess dying{[&]() -> int {
    PhaseTable own = table.of(1);
    return ::pause();
  }};
  REQUIRE(table.has_started(1));
  CapturedStderr captured;
  ChildProcess survivor{[&]() -> int {
    PhaseTable own = table.of(2);
    const Watchdog watchdog{own, {"a", "b", "c"}, {}, [](ExitCode code) { ::_exit(static_cast<int>(code)); }};
    return ::pause();
  }};
  REQUIRE(eventually([&] { return table.rows.read(2).heartbeat > 0; }));
  survivor.signal(SIGSTOP);
  dying.signal(SIGKILL);
  dying.wait_for_end();
  survivor.signal(SIGTERM);
  survivor.signal(SIGCONT);
  CHECK(survivor.wait() == static_cast<int>(ExitCode::peer_failed));
  CHECK_THAT(captured.text(), Catch::StartsWith("lockstep: b is gone"));
}
