#include "core/watch/caught_signals.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <fmt/format.h>
#include <sys/resource.h>

#include "core/watch/signal_handler.hpp"

namespace lockstep {
namespace {

// For the line that says so, and the end of the other ranks.
constexpr rlim_t longest_reserve = 2;

std::atomic<bool> stop_has_come{false};
std::atomic<bool> cpu_signal_has_come{false};
std::atomic<rlim_t> limit_in_seconds{0};
static_assert(std::atomic<bool>::is_always_lock_free);

/// What the signal interrupts must not fail: what it asks for happens later.
void remember(int signal, SignalHandler handler) {
  make_room_for_handler();
  handle_signal(signal, handler, SA_RESTART);
}

}  // namespace

void catch_stop_signal(int signal) {
  remember(signal, [](int, siginfo_t*, void*) { stop_has_come = true; });
}

bool stop_signal_has_come() {
  return stop_has_come;
}

void catch_cpu_limit() {
  struct sigaction before = {};
  rlimit limit = {};
  if (::sigaction(SIGXCPU, nullptr, &before) != 0 || ::getrlimit(RLIMIT_CPU, &limit) != 0) return;
  if ((before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)) return;
  if (limit_in_seconds == 0) limit_in_seconds = limit.rlim_cur;
  remember(SIGXCPU, [](int, siginfo_t*, void*) { cpu_signal_has_come = true; });
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur < limit.rlim_max) return;
  limit.rlim_cur -= std::min(longest_reserve, limit.rlim_cur / 2);
  ::setrlimit(RLIMIT_CPU, &limit);
}

std::optional<std::string> cpu_limit_reached() {
  if (!cpu_signal_has_come) return std::nullopt;
  const rlim_t limit = limit_in_seconds;
  if (limit == RLIM_INFINITY) return "has used up the CPU time that its scheduler allows (SIGXCPU)";
  return fmt::format("has used up its CPU time, {} s (SIGXCPU, ulimit -t)", limit);
}

}  // namespace lockstep
