// Where everyone is, and where a rank's main thread is that is about to stall.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "core/watch/judgement.hpp"
#include "core/watch/question_signal.hpp"
#include "core/watch/stack_text.hpp"
#include "core/watch/watch_notes.hpp"
#include "core/watch/watchdog.hpp"
#include "core/watch/where_table.hpp"
#include "judgement_scene.hpp"
#include "support/phase_rows.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::beat_for_ever;
using lockstep::test::CapturedStderr;
using lockstep::test::ChildRank;
using lockstep::test::eventually;
using lockstep::test::merge_tag;
using lockstep::test::Scene;
using lockstep::test::Table;

namespace {

using Seconds = Whereabout::Seconds;

/// 2026-11-26 17:01:02 UTC.
constexpr std::chrono::system_clock::time_point noon{std::chrono::seconds{1795712462}};

/// SIGUSR2 as a runtime takes it, while this object lives.
struct CaughtQuestions {
  CaughtQuestions() { catch_question_signal(); }
  CaughtQuestions(const CaughtQuestions&) = delete;
  ~CaughtQuestions() {
    release_question_signal();
    (void)question_has_come();
  }
};

/// SIGUSR2 held back on this thread, as one does that is in the kernel.
class HeldQuestions {
 public:
  HeldQuestions() {
    sigset_t question;
    sigemptyset(&question);
    sigaddset(&question, SIGUSR2);
    ::pthread_sigmask(SIG_BLOCK, &question, &before_);
  }
  HeldQuestions(const HeldQuestions&) = delete;
  ~HeldQuestions() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

/// What a watchdog leaves, in memory.
class KeptNotes {
 public:
  explicit KeptNotes(bool fails = false) {
    keep_watch_notes(std::make_shared<WatchNotes>(
        WatchNotes{"/run/where.txt", "/run/stacks", [this, fails](const auto& file, const std::string& text) {
                     while (waits) std::this_thread::sleep_for(1ms);
                     const std::scoped_lock lock{mutex_};
                     file_ = file;
                     text_ = text;
                     if (fails) throw std::runtime_error{"no space left"};
                   }}));
  }
  KeptNotes(const KeptNotes&) = delete;
  ~KeptNotes() { keep_watch_notes(nullptr); }

  std::string file() const {
    const std::scoped_lock lock{mutex_};
    return file_;
  }
  std::string text() const {
    const std::scoped_lock lock{mutex_};
    return text_;
  }
  bool has_come() const {
    return eventually([&] { return !file().empty(); });
  }

  std::atomic<bool> waits = false;  ///< for the disk

 private:
  mutable std::mutex mutex_;
  std::string file_, text_;
};

Watchdog watch(Table& table, double stall_timeout) {
  return Watchdog{table.rows,
                  {"replica 0", "replica 1", "replica 2"},
                  {.stall_timeout = Seconds{stall_timeout}, .on_stall = [](const std::string&) {}},
                  [](Error::ExitCode, Reach) {}};
}

/// A tick later, in which every rank has beaten.
Judgement look(Scene& job) {
  for (auto& row : job.rows) ++row.heartbeat;
  return job.judge();
}

/// The look in which something is so; 0 if it is not in so many.
template <class Is>
int first(Scene& job, Is&& is, int most = 3000) {
  for (int looks = 1; looks <= most; ++looks)
    if (is(look(job))) return looks;
  return 0;
}

template <class Is>
int first(Scene&& job, Is&& is) {
  return first(job, is);
}

constexpr auto answers = [](const Judgement& judged) { return judged.answers; };
constexpr auto takes_stack = [](const Judgement& judged) { return judged.takes_stack; };

}  // namespace

TEST_CASE("the table has a line for each rank, with what is known of it") {
  const Position in_step{.where = Position::Where::in_run, .step = 12};
  std::vector<Whereabout> ranks(5);
  ranks[0] = {.seen = {.phase = Phase::meeting,
                       .process = {.there = 4242},
                       .last = merge_tag(),
                       .position = in_step,
                       .memory = {.resident = 81u << 10, .peak = 90u << 10}},
              .there = Seconds{3.21}};
  ranks[1] = {.seen = {.phase = Phase::computing,
                       .process = {.there = 7},
                       .position = in_step,
                       .memory = {.resident = 20u << 20, .peak = 21u << 20}},
              .there = Seconds{31},
              .silent = Seconds{30.16}};
  ranks[2] = {.seen = {.phase = Phase::leaving}};
  ranks[3] = {.seen = {.phase = Phase::alone, .position = in_step}, .ended = true};
  CHECK(where_table(std::vector<std::string>{"replica 0 (worker:0, host a)", "b", "c", "d", "e"}, ranks, Seconds{1},
                    noon) ==
        "Where the 5 ranks are, 2026-11-26 17:01:02 UTC:\n"
        "  rank                          process    memory      peak     for  place\n"
        "  replica 0 (worker:0, host a)     4242    81 MiB    90 MiB   3.2 s  in step 12, waiting at merge_call #5 "
        "(trainer.cpp:120)\n"
        "  b                                   7  20.0 GiB  21.0 GiB  31.0 s  no heartbeat for 30.2 s; was in step 12, "
        "computing\n"
        "  c                                   -         -         -   0.0 s  was leaving the job\n"
        "  d                                   -         -         -   0.0 s  its process has ended; was in step 12, "
        "working alone\n"
        "  e                                   -         -         -       -  has not started\n");
  CHECK_THAT(where_table(std::vector<std::string>{"a"}, std::vector<Whereabout>(1), Seconds{1}, noon),
             Catch::StartsWith("Where the rank is, "));
}

TEST_CASE("how long a rank has been where it is counts from its last move, and its silence from its last heartbeat") {
  Stay stay;
  Stay::Time now{0};
  PhaseTable::Snapshot seen{.heartbeat = 1, .phase = Phase::computing};
  const auto after = [&](std::uint32_t seconds) {
    Observation::Row row;
    row.look(seen, {});
    stay.look(row, now += std::chrono::duration<std::uint32_t>{seconds});
    return std::pair{Seconds{stay.there(now)}.count(), Seconds{stay.silent(now)}.count()};
  };
  CHECK(after(1) == std::pair{0.0, 0.0});
  CHECK(after(1) == std::pair{1.0, 1.0});
  ++seen.heartbeat;
  CHECK(after(2) == std::pair{3.0, 0.0});
  seen.phase = Phase::meeting;
  CHECK(after(1) == std::pair{0.0, 1.0});
  CHECK(after(1) == std::pair{1.0, 2.0});
  ++seen.meeting;
  CHECK(after(1).first == 0);
  ++seen.position.step;
  CHECK(after(1).first == 0);
}

TEST_CASE("who asks while a question is open asks the same, and one rank of a node answers it") {
  Table table;
  PhaseTable other = table.of(1);
  const auto both = [&](const char* what) {
    CAPTURE(what);
    CHECK(table.rows.questions() == other.questions());
    return table.rows.questions();
  };
  CHECK_FALSE(both("none").is_open());
  CHECK_FALSE(other.answer());
  table.rows.ask();
  other.ask();
  CHECK(both("one") == PhaseTable::Questions{1, 0});
  CHECK(other.answer());
  CHECK_FALSE(table.rows.answer());
  table.rows.ask();
  table.rows.note({.asked = 1, .answered = 1});
  CHECK(both("another node is behind") == PhaseTable::Questions{2, 1});
  table.rows.note({.asked = 4, .answered = 3});
  CHECK(both("another node is ahead") == PhaseTable::Questions{4, 3});
}

TEST_CASE("a question is passed on, and answered by the lowest node when it has reached all") {
  Scene asked{{0, 0}};
  asked.seen.asked = true;
  CHECK(look(asked).asks);
  asked.seen.asked = false;
  CHECK_FALSE(look(asked).asks);
  CHECK(first(Scene{{0, 0}}, answers) == 0);
  const auto open = [](std::vector<int> lowest, int row) {
    Scene job{std::move(lowest), row};
    job.seen.questions = {.asked = 1, .answered = 0};
    return job;
  };
  CHECK(first(open({0, 0}, 1), answers) == 309);               // 0.3 s
  CHECK(first(open({0, 0, 2}, 1), answers) == 309 + 4);        // and two heartbeats
  CHECK(first(open({0, 0, 2}, 2), answers) == 309 + 4 + 513);  // and half a second for the lower node
  SECTION("what was asked before the answer is known is answered") {
    Scene job = open({0, 0}, 0);
    (void)look(job);
    job.seen.asked = true;
    CHECK_FALSE(look(job).asks);
    job.seen.questions.answered = 1;
    CHECK_FALSE(look(job).asks);
    CHECK(look(job).asks);
  }
  SECTION("what comes after this rank has answered is another question") {
    Scene job = open({0, 0}, 0);
    CHECK(first(job, answers) == 309);
    job.seen.questions.answered = 1;
    job.seen.asked = true;
    const Judgement next = look(job);
    CHECK((next.asks && !next.answers));
    job.seen.asked = false;
    job.seen.questions.asked = 2;
    CHECK(first(job, answers) == 308);
    job.seen.questions = {.asked = 3, .answered = 2};  // others were as quick
    CHECK(first(job, answers) == 309);
  }
}

TEST_CASE("a rank takes its stack when three quarters of the time are over in which others wait for it") {
  const auto waited_for = [](Phase phase, std::uint64_t meeting) {
    Scene job{{0, 0}};
    job.job.only_observes = true;
    job.row(0).phase = phase;
    job.row(1).phase = Phase::meeting;
    job.row(1).meeting = meeting;
    return job;
  };
  Scene late = waited_for(Phase::computing, 1);
  CHECK(first(late, takes_stack) == 1025 - 256);
  CHECK(first(late, takes_stack) == 0);
  CHECK(first(waited_for(Phase::device, 1), takes_stack) == 1025 - 256);
  CHECK(first(waited_for(Phase::computing, 0), takes_stack) == 0);
  CHECK(first(waited_for(Phase::alone, 1), takes_stack) == 0);
  CHECK(first(waited_for(Phase::leaving, 1), takes_stack) == 0);
  Scene reads = waited_for(Phase::computing, 1);
  int looks = 0;
  CHECK(first(reads, [&](const Judgement& judged) {
          if (++looks % 700 == 0) ++reads.row(0).progress;
          return judged.takes_stack;
        }) == 0);
  Scene moves = waited_for(Phase::computing, 10);
  CHECK(first(moves, [&](const Judgement& judged) {
          if (++looks % 700 == 0) ++moves.row(0).meeting;
          return judged.takes_stack;
        }) == 0);
  Scene stuck{{0}};
  stuck.seen.calls = {.begun = 8, .ended = 7};
  CHECK(first(stuck, takes_stack) == 1025 - 256 + 1);
}

TEST_CASE("a rank takes its stack a look later if there was no memory for the look in which it is time") {
  Scene job{{0, 0}};
  job.row(1).phase = Phase::meeting;
  job.row(1).meeting = 1;
  REQUIRE(first(job, takes_stack, 1024 - 256) == 0);
  job.job.names = {2, [](int) -> std::string { throw std::bad_alloc{}; }};
  job.sight(1).process = Observation::Process::ended;
  CHECK_THROWS_AS(look(job), std::bad_alloc);
  job.sight(1).process = Observation::Process::running;
  CHECK(look(job).takes_stack);
  CHECK_FALSE(look(job).takes_stack);
}

TEST_CASE("the sentence about a rank that is late names the file of its stack, if there is one") {
  const auto sentence = [](bool is_kept, const char* stacks) {
    Scene job{{0, 0}};
    job.seen.stacks = stacks;
    job.row(0).phase = Phase::meeting;
    job.row(0).meeting = 1;
    job.row(0).last = merge_tag();
    job.row(1).stack = is_kept ? job.row(1).meetings + 1 : 0;
    std::string found;
    first(job, [&](const Judgement& judged) {
      if (judged.failure) found = judged.failure->sentence;
      return judged.failure.has_value();
    });
    return found;
  };
  const std::string start =
      "b is late: merge_call #5 (trainer.cpp:120) was waited for 1 s; it runs, and was before the first step, "
      "computing";
  const std::string end =
      "; work that only one rank does is announced by working_alone() in C++ and Python, or needs a longer stall "
      "timeout";
  CHECK(sentence(true, "/run/stacks") == start + "; /run/stacks/rank-1.txt says where its threads were" + end);
  CHECK(sentence(false, "/run/stacks") == start + end);
  CHECK(sentence(true, "") == start + end);
}

TEST_CASE("a program that handles SIGUSR2 keeps it") {
  static volatile std::sig_atomic_t handled = 0;
  std::signal(SIGUSR2, [](int) { handled = 1; });
  catch_question_signal();
  ::kill(::getpid(), SIGUSR2);
  CHECK(handled == 1);
  CHECK_FALSE(question_has_come());
  CHECK_FALSE(ask_for_stack());
  release_question_signal();
  ::raise(SIGUSR2);
  std::signal(SIGUSR2, SIG_DFL);
}

TEST_CASE("a program that blocks SIGUSR2 keeps it") {
  const HeldQuestions held;
  catch_question_signal();
  ::kill(::getpid(), SIGUSR2);
  CHECK_FALSE(question_has_come());
  CHECK_FALSE(ask_for_stack());
  sigset_t question;
  sigemptyset(&question);
  sigaddset(&question, SIGUSR2);
  const timespec at_once = {};
  CHECK(::sigtimedwait(&question, nullptr, &at_once) == SIGUSR2);
  release_question_signal();
}

TEST_CASE("SIGUSR2 is a question, also where the main thread cannot take it") {
  const CaughtQuestions caught;
  CHECK_FALSE(question_has_come());
  ::kill(::getpid(), SIGUSR2);
  CHECK(question_has_come());
  CHECK_FALSE(question_has_come());
  const HeldQuestions held;
  ::kill(::getpid(), SIGUSR2);
  CHECK(question_has_come());
  CHECK_FALSE(question_has_come());
}

namespace {

/// A function that no other library sees.
[[gnu::noinline]] bool ask_from_here() {
  const bool asked = ask_for_stack();
  return asked && recorded_stack();
}

}  // namespace

TEST_CASE("a stack in words has the functions of this program and of libraries, one a line") {
  const CaughtQuestions caught;
  REQUIRE(ask_from_here());
  CHECK_FALSE(question_has_come());
  const std::string text = describe(*recorded_stack());
  INFO(text);
  CHECK_THAT(text, Catch::StartsWith("#0 "));
  CHECK_THAT(text, Catch::Contains("::ask_from_here()  (unit-core+0x"));
#ifndef __SANITIZE_THREAD__  // which calls the handler of a signal somewhat later
  CHECK_THAT(text, Catch::Contains("(libc.so.6+0x") && Catch::Contains(" lockstep::ask_for_stack()  (unit-core+0x"));
#endif
  CHECK_THAT(describe_thread(::gettid()), Catch::StartsWith("state R (running)"));
  CHECK(describe_thread(1 << 30) == "gone");
}

TEST_CASE("who asks a watchdog gets the table once on stderr, and the same text in the notes") {
  const CaughtQuestions caught;
  Table table;
  const ChildRank beating{table, 1, beat_for_ever};
  const ChildRank silent{table, 2};
  const KeptNotes notes;
  CapturedStderr err;
  const Watchdog watchdog = watch(table, 1000);
  ::kill(::getpid(), SIGUSR2);
  REQUIRE(notes.has_come());
  CHECK(notes.file() == "/run/where.txt");
  CHECK(eventually([&] { return err.text() == notes.text(); }));
  CHECK_THAT(notes.text(), Catch::StartsWith("Where the 3 ranks are, ") && Catch::Contains("  replica 1  ") &&
                               Catch::Contains(" MiB ") && Catch::Contains(" s  before the first step, computing\n"));
  CHECK(notes.text().find(std::to_string(beating.id())) != std::string::npos);
}

TEST_CASE("while the disk hangs, tables go to stderr, and the last one to the notes afterwards") {
  const CaughtQuestions caught;
  Table table;
  const ChildRank beating{table, 1, beat_for_ever};
  KeptNotes notes;
  notes.waits = true;
  CapturedStderr err;
  const Watchdog watchdog = watch(table, 1000);
  std::string last;
  for (const int question : {1, 2, 3}) {
    CAPTURE(question);
    const std::size_t before = err.text().size();
    ::kill(::getpid(), SIGUSR2);
    CHECK(eventually([&] { return err.text().size() > before; }));
    last = err.text().substr(before);
    CHECK_THAT(last, Catch::StartsWith("Where the 3 ranks are, "));
  }
  CHECK(notes.file().empty());
  notes.waits = false;
  CHECK(eventually([&] { return notes.text() == last; }));
}

TEST_CASE("a rank that others wait for leaves its main thread's stack, and says so") {
  const CaughtQuestions caught;
  Table table;
  const ChildRank waiting{table, 1, [](PhaseTable& own) {
                            own.enter_meeting(1, merge_tag());
                            return beat_for_ever(own);
                          }};
  REQUIRE(table.has_beaten(1));
  SECTION("which answers") {
    const KeptNotes notes;
    const Watchdog watchdog = watch(table, 0.4);
    REQUIRE(eventually([&] { return table.rows.read(0).has_stack(); }));
    CHECK(notes.file() == "/run/stacks/rank-0.txt");
    INFO(notes.text());
    CHECK_THAT(notes.text(), Catch::StartsWith("replica 0, process " + std::to_string(::getpid())) &&
                                 Catch::Contains("\nit was before the first step, computing\n") &&
                                 Catch::Contains("\n#0 ") && Catch::Contains("lockstep::test::eventually(") &&
                                 Catch::Contains("\nother threads\n"));
    table.rows.enter_meeting(1, merge_tag());
    CHECK_FALSE(table.rows.read(0).has_stack());
  }
  SECTION("which does not answer") {
    const KeptNotes notes;
    const HeldQuestions held;
    const Watchdog watchdog = watch(table, 0.4);
    REQUIRE(eventually([&] { return table.rows.read(0).has_stack(); }));
    INFO(notes.text());
    CHECK_THAT(notes.text(), Catch::Contains("\nmain thread " + std::to_string(::gettid()) + ", state ") &&
                                 Catch::Contains("\nasked for its stack, and does not answer\n"));
  }
  SECTION("where the notes cannot be written, and the watchdog goes on") {
    const KeptNotes notes{/*fails=*/true};
    const Watchdog watchdog = watch(table, 0.4);
    REQUIRE(notes.has_come());
    const auto heartbeat = table.rows.read(0).heartbeat;
    CHECK(eventually([&] { return table.rows.read(0).heartbeat > heartbeat + 5; }));
    CHECK_FALSE(table.rows.read(0).has_stack());
  }
}
