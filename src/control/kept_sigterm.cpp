#include "control/kept_sigterm.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <thread>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/descriptor.hpp"

namespace lockstep {
namespace {

// A signal handler can reach only globals.
std::atomic<int> event_of_handler{-1};

void on_sigterm(int) {
  const int saved = errno;
  const std::uint64_t one = 1;
  if (const int event = event_of_handler.load(); event >= 0) (void)!::write(event, &one, sizeof one);
  errno = saved;
}

/// Shared by the objects of a process, which has one handler per signal.
struct Shared {
  std::mutex mutex;
  int objects = 0;
  Descriptor event;
  struct sigaction before = {};
};

Shared& shared() {
  static Shared instance;
  return instance;
}

bool is_readable(int descriptor) {
  pollfd wait{descriptor, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace

KeptSigterm::KeptSigterm() {
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  if (all.objects++ == 0) {
    all.event = Descriptor{::eventfd(0, EFD_CLOEXEC)};
    event_of_handler = all.event.get();
    struct sigaction action = {};
    action.sa_handler = on_sigterm;
    ::sigaction(SIGTERM, &action, &all.before);
  }
  descriptor_ = all.event.get();
}

KeptSigterm::~KeptSigterm() {
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  if (--all.objects > 0) return;
  ::sigaction(SIGTERM, &all.before, nullptr);
  event_of_handler = -1;
  const bool unheeded = is_readable(all.event.get());
  all.event = Descriptor{};
  if (unheeded) ::kill(::getpid(), SIGTERM);
}

bool KeptSigterm::has_come() const {
  return is_readable(descriptor_);
}

void KeptSigterm::let_through() const {
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  ::sigaction(SIGTERM, &all.before, nullptr);
}

void KeptSigterm::die() const {
  let_through();
  ::kill(::getpid(), SIGTERM);
  // The kernel delivers the signal in its own time; it does not return here.
  std::this_thread::sleep_for(std::chrono::seconds{1});
  std::_Exit(128 + SIGTERM);
}

}  // namespace lockstep
