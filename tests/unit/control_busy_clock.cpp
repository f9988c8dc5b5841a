// The clock of what a rank is busy with: every moment is one part's, or spent waiting; and how long a
// thread waits for a processor.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <sched.h>

#include "control_meeting_support.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/channel.hpp"
#include "core/control/job_time.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/run_delay.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

using Part = BusyClock::Part;
using std::chrono::nanoseconds;

/// Time that passes only when a test says so, in distinct powers of two. So a sum tells what it is the sum of.
struct ByHand {
  nanoseconds time{};
  std::vector<nanoseconds> slept;
  nanoseconds queued{};
  int looks = 0;

  void pass(std::int64_t length) { time += nanoseconds{length}; }
  BusyClock::TimeSource source() {
    return {.now =
                [this] {
                  ++looks;
                  return BusyClock::Time{time};
                },
            .sleep =
                [this](nanoseconds length) {
                  slept.push_back(length);
                  time += length;
                },
            .run_delay = [this] { return queued; }};
  }
};

/// In the order of the parts, and then what was waited.
using Row = std::array<std::int64_t, BusyClock::parts + 1>;

Row row_of(const BusyClock::Times& times) {
  Row row{};
  for (std::size_t part = 0; part < BusyClock::parts; ++part) row[part] = times.busy[part].count();
  row.back() = times.waiting.count();
  return row;
}

/// A channel in which each message takes so long.
class SlowChannel final : public ControlChannel {
 public:
  SlowChannel(ByHand& hand, std::int64_t length) : hand_{hand}, length_{length} {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override {
    hand_.pass(length_);
    return words;
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    hand_.pass(length_);
    std::ranges::copy(mine, all.begin());
  }
  void broadcast(std::span<std::byte>, int) override { hand_.pass(length_); }
  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>&) override { return nullptr; }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte>, std::span<std::byte>) override {
    return nullptr;
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte>, int) override { return nullptr; }
  std::unique_ptr<ControlChannel> subset(std::span<const int>, std::uint64_t) override { return nullptr; }

 private:
  ByHand& hand_;
  std::int64_t length_;
};

}  // namespace

TEST_CASE("the parts and the waiting add up to the time that passed, with two looks at the clock a wait") {
  ByHand hand;
  BusyClock clock{hand.source()};
  hand.pass(1);
  {
    const BusyClock::During loading{Part::data};
    hand.pass(2);
  }
  BusyClock::enter(Part::forward);
  hand.pass(4);
  BusyClock::enter(Part::backward);
  hand.pass(8);
  const int looks = hand.looks;
  {
    const BusyClock::Waiting waiting;
    hand.pass(16);
    const BusyClock::Waiting inside;  // a sum within what the rank waits for
    hand.pass(32);
  }
  CHECK(hand.looks == looks + 2);
  hand.pass(64);
  {
    const BusyClock::During updating{Part::optimizer};
    hand.pass(128);
    const BusyClock::Waiting waiting;
    hand.pass(256);
    BusyClock::enter(Part::checkpoint);  // for when the wait is over
    hand.pass(512);
  }
  hand.pass(1024);
  BusyClock::enter(Part::evaluation);
  hand.pass(2048);
  CHECK(row_of(clock.lap()) == Row{2, 4, 8 + 64 + 1024, 128, 0, 2048, 1, 16 + 32 + 256 + 512});
  hand.pass(4096);
  const BusyClock::Times rest = clock.lap();
  CHECK(row_of(rest) == Row{0, 0, 0, 0, 0, 4096, 0, 0});
  CHECK(rest.elapsed() == nanoseconds{4096});
}

TEST_CASE("an exception ends what it leaves") {
  ByHand hand;
  BusyClock clock{hand.source()};
  try {
    const BusyClock::During loading{Part::data};
    hand.pass(1);
    const BusyClock::Waiting waiting;
    hand.pass(2);
    throw std::runtime_error{"lost"};
  } catch (const std::runtime_error&) {
  }
  hand.pass(4);
  CHECK(row_of(clock.lap()) == Row{1, 0, 0, 0, 0, 0, 4, 2});
}

TEST_CASE("a wait for the rank's own GPU is work, wherever it is, and one for the others' is none") {
  ByHand hand;
  BusyClock clock{hand.source()};
  MeetingPoint meeting{make_local_channel(), {"replica 0"}};
  const MeetingPoint::LaterWait others{};
  BusyClock::enter(Part::backward);
  {
    const BusyClock::Waiting waiting;
    hand.pass(1);
    meeting.wait_for_device(nullptr);
    hand.pass(2);
    meeting.wait_for_device(&others);
    hand.pass(4);
    meeting.leave_device();
    hand.pass(8);
  }
  hand.pass(16);
  meeting.wait_for_device(&others);
  hand.pass(32);
  meeting.leave_device();
  hand.pass(64);
  CHECK(row_of(clock.lap()) == Row{0, 0, 2 + 16 + 64, 0, 0, 0, 0, 1 + 4 + 8 + 32});
}

TEST_CASE("agreements and sums are waits, and what lies between is not") {
  ByHand hand;
  BusyClock clock{hand.source()};
  MeetingPoint meeting{std::make_unique<SlowChannel>(hand, 1), {"replica 0"}};
  const auto waited = [&] {
    hand.pass(1000);
    const Row row = row_of(clock.lap());
    CHECK(row[static_cast<std::size_t>(Part::other)] == 1000);
    return row.back();
  };
  agree(meeting);
  CHECK(waited() == 1);
  (void)meeting.all_equal(7);
  CHECK(waited() == 1);
  const std::vector<std::int64_t> mine{3, 4};
  CHECK(meeting.first_brought(mine) == mine);
  CHECK(waited() == 2);
  CHECK(meeting.gather(mine) == mine);
  CHECK(waited() == 1);
  meeting.open_sum([&] { hand.pass(8); });
  meeting.make_open_sum();
  CHECK(waited() == 8);
  meeting.enter_run();
  agree(meeting);
  {
    AgreedRegion region = meeting.agreed_region();
    region.wait_in([&] { hand.pass(16); });
    CHECK_THROWS(region.wait_in([&] {
      hand.pass(32);
      throw std::runtime_error{"lost"};
    }));
  }
  CHECK(waited() == 1 + 16 + 32);
  meeting.leave_run(0, Here::current());
  CHECK(waited() == 1);
}

TEST_CASE("only the thread that made a clock is timed, by the innermost one") {
  ByHand hand, inner_hand;
  BusyClock clock{hand.source()};
  std::thread{[&] {
    const BusyClock::During loading{Part::data};
    const BusyClock::Waiting waiting;
    BusyClock::enter(Part::forward);
    BusyClock::wait_for_device(BusyClock::DeviceWait::own);
    hand.pass(1);
  }}.join();
  hand.pass(2);
  {
    BusyClock inner{inner_hand.source()};
    BusyClock::enter(Part::data);
    inner_hand.pass(4);
    CHECK(row_of(inner.lap()) == Row{4, 0, 0, 0, 0, 0, 0, 0});
  }
  hand.pass(8);
  CHECK(row_of(clock.lap()) == Row{0, 0, 0, 0, 0, 0, 1 + 2 + 8, 0});
}

TEST_CASE("a part that is slowed down takes so many times as long, and what it waits for does not") {
  ByHand hand;
  BusyClock clock{hand.source()};
  clock.slow_down({Part::forward, Part::backward}, 2.5);
  BusyClock::enter(Part::data);
  hand.pass(100);
  BusyClock::enter(Part::forward);
  hand.pass(10);
  BusyClock::enter(Part::forward);  // of another shard
  hand.pass(10);
  BusyClock::enter(Part::backward);
  hand.pass(40);
  {
    const BusyClock::Waiting waiting;
    hand.pass(1000);
  }
  hand.pass(2);
  BusyClock::enter(Part::other);
  CHECK(hand.slept == std::vector<nanoseconds>{nanoseconds{30}, nanoseconds{60}, nanoseconds{3}});
  CHECK(row_of(clock.lap()) == Row{100, 50, 105, 0, 0, 0, 0, 1000});
}

TEST_CASE("the time of a job stands still while nobody looks, and a pause of the whole job is not made up for") {
  using Seconds = std::chrono::duration<double>;
  const auto hour = std::chrono::hours{1};
  const auto about = [](Seconds expected) { return Catch::WithinAbs(expected.count(), 60); };
  const auto begin = JobTime::now();
  const auto since_begin = [&] { return Seconds{JobTime::now() - begin}.count(); };
  JobTime::look(std::chrono::steady_clock::now() - hour, false);
  // The watchdog has not come for an hour. Until it says why, no more than half a second has passed since.
  CHECK_THAT(since_begin(), about(-hour));
  JobTime::look(std::chrono::steady_clock::now(), true);
  CHECK_THAT(since_begin(), about(-hour));
  // Only this rank was stopped: that time counts.
  JobTime::look(std::chrono::steady_clock::now() + hour, false);
  CHECK_THAT(since_begin(), about(-hour));
  JobTime::end();
  CHECK_THAT(since_begin(), about(-hour));
}

TEST_CASE("a sleep that was too long makes the next one shorter") {
  ByHand hand;
  BusyClock::TimeSource source = hand.source();
  source.sleep = [&](nanoseconds length) {
    hand.slept.push_back(length);
    hand.time += length + nanoseconds{25};
  };
  BusyClock clock{source};
  clock.slow_down({Part::data}, 2);
  for (int i = 0; i < 3; ++i) {
    BusyClock::enter(Part::data);
    hand.pass(20);
    BusyClock::enter(Part::other);
  }
  // Of 60 owed, 45 after the first, then none as 5 are left over, then 15.
  CHECK(hand.slept == std::vector<nanoseconds>{nanoseconds{20}, nanoseconds{15}});
}

TEST_CASE("a part has a name, and each name is one part's") {
  for (std::size_t number = 0; number < BusyClock::parts; ++number) {
    const Part part{static_cast<std::uint8_t>(number)};
    CHECK(part_named(name_of(part)) == part);
  }
  for (const char* none : {"", "waiting", "Data"}) CHECK_FALSE(part_named(none));
}

TEST_CASE("a clock that is off counts nothing, and one that ends meanwhile is forgotten") {
  ByHand hand;
  std::optional<BusyClock> clock{std::in_place, hand.source()};
  std::optional<BusyClock::Off> off{std::in_place};
  const int looks = hand.looks;
  {
    const BusyClock::During working{Part::forward};
    const BusyClock::Waiting waiting;
    hand.pass(1);
  }
  CHECK(hand.looks == looks);
  off.reset();
  BusyClock::enter(Part::data);
  hand.pass(2);
  BusyClock::enter(Part::other);
  CHECK(row_of(clock->lap()) == Row{2, 0, 0, 0, 0, 0, 1, 0});

  off.emplace();
  clock.reset();
  off.reset();
  const int last = hand.looks;
  BusyClock::enter(Part::data);  // of no clock
  CHECK(hand.looks == last);
}

TEST_CASE("a thread that shares its processor with another waits for it") {
  if (!std::filesystem::exists("/proc/thread-self/schedstat")) {
    CHECK(run_delay() == std::chrono::nanoseconds{});
    return;
  }
  cpu_set_t before, one;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  std::atomic<bool> done = false;
  std::thread rival{[&] {
    while (!done) continue;
  }};
  const auto start = run_delay();
  while (run_delay() < start + std::chrono::milliseconds{5}) continue;
  done = true;
  rival.join();
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}
