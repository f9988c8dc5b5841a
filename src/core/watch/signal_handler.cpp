#include "core/watch/signal_handler.hpp"

#include <array>
#include <cstddef>

namespace lockstep {

void make_room_for_handler() {
  thread_local std::array<std::byte, std::size_t{64} << 10> room;
  stack_t now = {};
  if (::sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
  const stack_t own{.ss_sp = room.data(), .ss_flags = 0, .ss_size = room.size()};
  ::sigaltstack(&own, nullptr);
}

void handle_signal(int signal, SignalHandler handler, int more_flags) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO | more_flags;
  ::sigaction(signal, &action, nullptr);
}

bool is_default(const struct sigaction& action) {
  return !(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL;
}

bool is_handled_by(const struct sigaction& action, SignalHandler handler) {
  return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == handler;
}

}  // namespace lockstep
