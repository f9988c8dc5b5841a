// A thread for work that may never end.
#include "core/base/side_thread.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include <catch2/catch.hpp>

#include "support/child_process.hpp"

using namespace lockstep;
using namespace std::chrono_literals;
using lockstep::test::eventually;

TEST_CASE("a side thread does one thing at a time, and is not waited for without end") {
  const auto waits = std::make_shared<std::atomic<bool>>(true);
  const auto ended = std::make_shared<std::atomic<int>>(0);
  const auto work = [=] {
    while (*waits) std::this_thread::sleep_for(1ms);
    ++*ended;
  };
  {
    SideThread thread;
    REQUIRE(thread.start(work));
    CHECK(thread.is_busy());
    CHECK_FALSE(thread.start([=] { *ended += 10; }));
    *waits = false;
    REQUIRE(eventually([&] { return !thread.is_busy(); }));
    CHECK(*ended == 1);
    REQUIRE(thread.start([=] {
      std::this_thread::sleep_for(50ms);
      ++*ended;
    }));
  }
  CHECK(*ended == 2);
  *waits = true;
  const auto begin = std::chrono::steady_clock::now();
  {
    SideThread thread;
    REQUIRE(thread.start(work));
  }
  CHECK(std::chrono::steady_clock::now() - begin >= 500ms);
  CHECK(*ended == 2);
  *waits = false;
  CHECK(eventually([&] { return *ended == 3; }));
}
