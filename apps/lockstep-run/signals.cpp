#include "apps/lockstep-run/signals.hpp"

#include <csignal>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

namespace lockstep::run {

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  // A signal that is ignored, as by nohup, would come all the same if it were held back.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    if (struct sigaction old = {}; ::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_IGN)
      sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = Descriptor{::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (descriptor_.get() < 0) throw Error{"signalfd failed"};
}

std::optional<int> Signals::take() const {
  signalfd_siginfo info;
  if (::read(descriptor_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::optional<int> Signals::take_within(std::chrono::milliseconds time) const {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + time;
  while (true) {
    while (const auto signal = take())
      if (*signal != SIGCHLD && *signal != SIGUSR2) return signal;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return std::nullopt;
    pollfd wait{descriptor(), POLLIN, 0};
    ::poll(&wait, 1, static_cast<int>(left.count()));
  }
}

}  // namespace lockstep::run
