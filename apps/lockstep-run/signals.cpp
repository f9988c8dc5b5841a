#include "apps/lockstep-run/signals.hpp"

#include <csignal>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::run {

namespace {

/// It carries the number of another. Several of these wait in a queue, where one of a kind would take the place of the
/// next.
int carrier() {
  return SIGRTMIN;
}

}  // namespace

Signals::Signals(std::optional<pid_t> passed_on_by) : passed_on_by_{passed_on_by} {
  sigset_t taken;
  sigemptyset(&taken);
  // A signal that is ignored, as by nohup, would come all the same if it were held back.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    if (struct sigaction old = {}; ::sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_IGN)
      sigaddset(&taken, signal);
  sigaddset(&taken, SIGCHLD);
  sigset_t held = taken;
  sigaddset(&held, carrier());  // a process that this one forks may get it at once
  ::sigprocmask(SIG_BLOCK, &held, nullptr);
  if (passed_on_by_) {
    sigemptyset(&taken);
    for (const int signal : {SIGCHLD, carrier()}) sigaddset(&taken, signal);
  }
  descriptor_ = Descriptor{::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (descriptor_.get() < 0) throw Error{"signalfd failed"};
}

std::optional<int> Signals::take() const {
  signalfd_siginfo info;
  while (::read(descriptor_.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (!passed_on_by_ || signal != carrier()) return signal;
    if (info.ssi_code == SI_QUEUE && static_cast<pid_t>(info.ssi_pid) == *passed_on_by_) return info.ssi_int;
  }
  return std::nullopt;
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

void pass_on(int signal, pid_t process) {
  sigval number = {};
  number.sival_int = signal;
  ::sigqueue(process, carrier(), number);
}

}  // namespace lockstep::run
