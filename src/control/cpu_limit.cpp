#include "control/cpu_limit.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <fmt/format.h>
#include <sys/resource.h>

#include "control/kept_signals.hpp"

namespace lockstep {
namespace {

// For the line that says so, and the end of the other ranks.
constexpr rlim_t longest_reserve = 2;

// A signal handler can reach only globals.
std::atomic<bool> cpu_signal_has_come{false};
std::atomic<rlim_t> limit_in_seconds{0};

}  // namespace

void catch_cpu_limit() {
  struct sigaction before = {};
  rlimit limit = {};
  if (::sigaction(SIGXCPU, nullptr, &before) != 0 || ::getrlimit(RLIMIT_CPU, &limit) != 0) return;
  if ((before.sa_flags & SA_SIGINFO) || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)) return;
  if (limit_in_seconds == 0) limit_in_seconds = limit.rlim_cur;
  make_room_for_handler();
  struct sigaction action = {};
  action.sa_handler = [](int) { cpu_signal_has_come = true; };
  action.sa_flags = SA_ONSTACK | SA_RESTART;
  ::sigaction(SIGXCPU, &action, nullptr);
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
