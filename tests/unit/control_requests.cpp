// What moves requests on: whoever waits, and a thread.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>

#include "core/control/request_progress.hpp"

using namespace lockstep;

namespace {

/// Requests that are done one step at a time, as long as somebody moves them on.
class Steps final : public RequestProgress::Source {
 public:
  explicit Steps(int count) : left{count} {}
  bool advance() override {
    // Two at a time would lose steps.
    if (left == 0) return false;
    left = left - 1;
    return true;
  }
  std::atomic<int> left;
};

}  // namespace

TEST_CASE("who waits for one of several sources moves on all, and two threads that wait do not move one at once") {
  RequestProgress progress;
  progress.set_threads(RequestProgress::Threads::any);
  Steps one{20'000}, other{30'000};
  const RequestProgress::Added first{progress, one}, second{progress, other};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i)
    waiting.emplace_back([&, i] { progress.wait_until([&] { return (i == 0 ? one : other).left == 0; }); });
  for (std::thread& each : waiting) each.join();
  CHECK(one.left == 0);
  CHECK(other.left == 0);
}

TEST_CASE("requests go on by themselves as long as there are some") {
  Steps steps{1000};
  RequestProgress progress;
  progress.set_threads(RequestProgress::Threads::any);
  const RequestProgress::Added added{progress, steps};
  CHECK_FALSE(progress.is_busy());
  progress.prepare();
  for (int round = 0; round < 3; ++round) {
    progress.begin();
    CHECK(progress.is_busy());
    while (steps.left > 0) std::this_thread::yield();  // until the thread has moved them
    progress.end();
    steps.left = 10;
  }
}

TEST_CASE("where one thread alone may move requests on, others are refused, and look on") {
  RequestProgress progress;
  Steps steps{1};
  const RequestProgress::Added added{progress, steps};
  std::string refusal;
  bool moved = true;
  std::thread{[&] {
    moved = progress.advance();
    try {
      progress.require_callable(Here::current());
    } catch (const ContextError& error) {
      refusal = error.what();
    }
  }}.join();
  CHECK_FALSE(moved);
  CHECK_THAT(refusal, Catch::StartsWith("a request (control_requests.cpp:") &&
                          Catch::Contains("expected an MPI with MPI_THREAD_MULTIPLE"));
  progress.require_callable(Here::current());
  CHECK(progress.advance());
  CHECK_FALSE(progress.advance());
}
