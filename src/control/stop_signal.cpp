#include "control/stop_signal.hpp"

#include <atomic>
#include <csignal>

#include "control/kept_signals.hpp"

namespace lockstep {
namespace {

// A signal handler can reach only globals.
std::atomic<bool> has_come{false};
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

void catch_stop_signal(int signal) {
  make_room_for_handler();
  struct sigaction action = {};
  action.sa_handler = [](int) { has_come = true; };
  // The wish waits for the end of a step: what the signal interrupts must not fail.
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

bool stop_signal_has_come() {
  return has_come;
}

}  // namespace lockstep
