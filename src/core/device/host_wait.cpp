#include "core/device/host_wait.hpp"

#include <atomic>

#include "core/device/poll_clock.hpp"

namespace lockstep::detail {
namespace {

std::atomic<HostWait*> way_of_process = nullptr;

void poll_without_limit(const std::function<bool()>& done) {
  const auto clock = make_poll_clock();
  const Seconds start = clock->now();
  while (!done()) clock->pause(clock->now() - start);
}

}  // namespace

WaitOfProcess::WaitOfProcess(HostWait& wait) : before_{way_of_process.exchange(&wait)} {}

WaitOfProcess::~WaitOfProcess() {
  way_of_process = before_;
}

void wait_on_host(const std::function<bool()>& done) {
  HostWait* const wait = way_of_process;
  wait ? wait->until(done) : poll_without_limit(done);
}

}  // namespace lockstep::detail
