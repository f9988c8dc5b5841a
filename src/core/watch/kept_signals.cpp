#include "core/watch/kept_signals.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "core/watch/signal_handler.hpp"

namespace lockstep {
namespace {

std::atomic<int> event_of_handler{-1};
std::atomic<int> signal_that_came{SIGTERM};
std::atomic<pid_t> sender{0};

void on_signal(int signal, siginfo_t* info, void*) {
  const int saved = errno;
  signal_that_came = signal;
  sender = info->si_pid;
  const std::uint64_t one = 1;
  if (const int event = event_of_handler.load(); event >= 0) (void)!::write(event, &one, sizeof one);
  errno = saved;
}

struct Kept {
  int signal;
  struct sigaction before = {};
  bool taken = false;  ///< whether our handler is installed
};

/// Shared by the objects of a process, which has one handler per signal.
struct Shared {
  std::mutex mutex;
  int objects = 0;
  Descriptor event;
  std::array<Kept, 2> signals{{{SIGTERM}, {SIGINT}}};

  void take() {
    for (Kept& kept : signals) {
      ::sigaction(kept.signal, nullptr, &kept.before);
      if (kept.signal == SIGINT && !is_default(kept.before)) continue;
      handle_signal(kept.signal, on_signal);
      kept.taken = true;
    }
  }
  void restore() {
    for (Kept& kept : signals)
      if (std::exchange(kept.taken, false)) ::sigaction(kept.signal, &kept.before, nullptr);
  }
};

Shared& shared() {
  // Never destroyed: a program may call exit while threads still wait for the signals.
  static Shared& instance = *new Shared;
  return instance;
}

bool is_readable(int descriptor) {
  pollfd wait{descriptor, POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

}  // namespace

KeptSignals::KeptSignals(Keep keep) {
  if (keep == Keep::none) return;
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  if (all.objects == 0) {
    make_room_for_handler();
    all.event = Descriptor{::eventfd(0, EFD_CLOEXEC)};
    // Without a descriptor nobody would learn of a signal, which ends the process as it did before.
    if (all.event.get() < 0) return;
    event_of_handler = all.event.get();
    all.take();
  }
  ++all.objects;
  descriptor_ = all.event.get();
}

KeptSignals::~KeptSignals() {
  if (descriptor_ < 0) return;
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  if (--all.objects > 0) return;
  all.restore();
  event_of_handler = -1;
  const bool unheeded = is_readable(all.event.get());
  all.event = Descriptor{};
  if (unheeded) ::kill(::getpid(), signal_that_came);
}

bool KeptSignals::has_come() const {
  return descriptor_ >= 0 && is_readable(descriptor_);
}

void KeptSignals::heed() const {
  std::uint64_t count = 0;
  if (has_come()) (void)!::read(descriptor_, &count, sizeof count);
}

bool KeptSignals::came_from_parent() const {
  return sender == ::getppid();
}

void KeptSignals::let_through() const {
  if (descriptor_ < 0) return;
  Shared& all = shared();
  const std::lock_guard lock{all.mutex};
  all.restore();
}

void KeptSignals::die() const {
  let_through();
  ::kill(::getpid(), signal_that_came);
  // The kernel delivers the signal in its own time; it does not return here.
  std::this_thread::sleep_for(std::chrono::seconds{1});
  std::_Exit(128 + signal_that_came);
}

}  // namespace lockstep
