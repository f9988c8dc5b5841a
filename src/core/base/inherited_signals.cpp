#include "core/base/inherited_signals.hpp"

#include <csignal>
#include <initializer_list>

namespace lockstep {

void let_writes_fail() {
  for (const int signal : {SIGPIPE, SIGXFSZ})
    if (struct sigaction now = {}; ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
      std::signal(signal, SIG_IGN);
}

void settle_inherited_signals() {
  let_writes_fail();
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace lockstep
