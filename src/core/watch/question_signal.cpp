#include "core/watch/question_signal.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/watch/signal_handler.hpp"

namespace lockstep {
namespace {

// This function and the one to which it returns.
constexpr std::size_t frames_of_handler = 2;

std::atomic<bool> question_came{false};
std::atomic<std::uint32_t> stacks_asked{0};
std::atomic<std::uint32_t> stacks_recorded{0};
std::atomic<pid_t> computing_thread{0};
std::array<void*, RawStack::most_frames + frames_of_handler> recorded_frames;
std::size_t recorded_count = 0;  ///< to be read, as `recorded_frames`, once `stacks_recorded` says so
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<pid_t>::is_always_lock_free);

void on_question(int, siginfo_t* info, void*) {
  const int saved = errno;
  if (info->si_code != SI_TKILL || info->si_pid != ::getpid()) {
    question_came = true;
  } else if (const auto asked = stacks_asked.load(); asked != stacks_recorded && ::gettid() == computing_thread) {
    // Who was asked twice before it could answer answers once: what it recorded is being read by then.
    recorded_count = static_cast<std::size_t>(
        std::max(0, ::backtrace(recorded_frames.data(), static_cast<int>(recorded_frames.size()))));
    stacks_recorded = asked;
  }
  errno = saved;
}

bool is_ours() {
  struct sigaction now = {};
  return ::sigaction(SIGUSR2, nullptr, &now) == 0 && is_handled_by(now, on_question);
}

}  // namespace

void catch_question_signal() {
  struct sigaction before = {};
  if (::sigaction(SIGUSR2, nullptr, &before) != 0) return;
  computing_thread = ::gettid();
  if (!is_default(before)) return;
  sigset_t blocked;
  if (::pthread_sigmask(SIG_BLOCK, nullptr, &blocked) != 0 || ::sigismember(&blocked, SIGUSR2) != 0) return;
  make_room_for_handler();
  // The first call loads a library, which a handler must not.
  std::array<void*, 1> frame;
  (void)::backtrace(frame.data(), 1);
  handle_signal(SIGUSR2, on_question, SA_RESTART);
}

void release_question_signal() {
  if (is_ours()) ::signal(SIGUSR2, SIG_DFL);
}

bool question_has_come() {
  if (question_came.exchange(false)) return true;
  // The kernel gives a signal to the main thread, and leaves it there while that cannot take it. Any thread may.
  if (!is_ours()) return false;
  sigset_t question;
  sigemptyset(&question);
  sigaddset(&question, SIGUSR2);
  const timespec at_once = {};
  return ::sigtimedwait(&question, nullptr, &at_once) == SIGUSR2;
}

bool ask_for_stack() {
  if (computing_thread == 0 || !is_ours()) return false;
  ++stacks_asked;
  return ::syscall(SYS_tgkill, ::getpid(), computing_thread.load(), SIGUSR2) == 0;
}

std::optional<RawStack> recorded_stack() {
  if (stacks_asked != stacks_recorded) return std::nullopt;
  RawStack stack;
  stack.count = recorded_count - std::min(recorded_count, frames_of_handler);
  std::copy_n(recorded_frames.begin() + frames_of_handler, stack.count, stack.frames.begin());
  return stack;
}

int main_thread() {
  return computing_thread;
}

}  // namespace lockstep
