#include "device/host_wait.hpp"

#include <atomic>

#include "device/poll_clock.hpp"

namespace lockstep::detail {
namespace {

std::atomic<HostWait*> innermost = nullptr;

void poll_without_limit(const std::function<bool()>& done) {
  const auto clock = make_poll_clock();
  const Seconds start = clock->now();
  while (!done()) clock->pause(clock->now() - start);
}

}  // namespace

HostWait::HostWait() : before_{innermost.exchange(this)} {}

HostWait::~HostWait() {
  innermost = before_;
}

void wait_on_host(const std::function<bool()>& done) {
  HostWait* const wait = innermost;
  wait ? wait->until(done) : poll_without_limit(done);
}

}  // namespace lockstep::detail
