// The signals that end a process, as others learn of them.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>

#include <catch2/catch.hpp>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/watch/caught_signals.hpp"
#include "core/watch/ending_signals.hpp"
#include "support/child_process.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;

namespace {

/// A word that a child shares with this process.
class SharedNote {
 public:
  SharedNote() : word_{::mmap(nullptr, sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)} {}
  SharedNote(const SharedNote&) = delete;
  ~SharedNote() { ::munmap(word_, sizeof(Word)); }

  using Word = std::atomic<std::uint64_t>;
  Word& operator*() const { return *static_cast<Word*>(word_); }

 private:
  void* word_;
};

/// How a process ends that notes its signals and then does `dies`: the note and, if it ended otherwise, the status.
std::string end_of(const std::function<void()>& dies, KeptSignals::Keep keep = KeptSignals::Keep::both) {
  const SharedNote note;
  ChildProcess child{[&] {
    const rlimit none = {};
    ::setrlimit(RLIMIT_CORE, &none);
    for (int signal = 1; signal <= SIGRTMAX; ++signal) ::signal(signal, SIG_DFL);  // sanitizers take some
    EndingSignals signals{keep};
    signals.note_in(*note);
    dies();
    return 0;
  }};
  const int status = child.wait();
  const auto noted = static_cast<int>(*note);
  return (noted == 0 ? "nothing" : name_of_signal(noted)) + (status == -noted ? "" : ", " + std::to_string(status));
}

// What a compiler does not see through.
int* volatile nowhere = nullptr;
volatile int one = 1, zero = 0;

// Sanitizers would end the process before the processor does.
__attribute__((no_sanitize("undefined", "address"))) void write_nowhere() {
  *nowhere = 1;
}
#if defined(__x86_64__)
__attribute__((no_sanitize("undefined"))) void divide_by_zero() {
  zero = one / zero;
}
#endif

}  // namespace

TEST_CASE("every signal that ends a process by default is noted and ends it, and no other") {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) continue;  // they stop it
    if (signal > 31 && signal < SIGRTMIN) continue;                                                  // the C library's
    const std::string name = name_of_signal(signal);
    CAPTURE(name);
    const bool does_nothing = signal == SIGCHLD || signal == SIGCONT || signal == SIGURG || signal == SIGWINCH;
    const bool is_others =
        signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGUSR2 || signal == SIGXCPU;
    const std::string expected = does_nothing ? "nothing" : is_others ? "nothing, " + std::to_string(-signal) : name;
    CHECK(end_of([signal] { ::raise(signal); }) == expected);
    if (signal >= SIGRTMIN + 1) break;
  }
}

TEST_CASE("a fault is noted, and so is the end of a timer that a parent has set") {
  CHECK(end_of(write_nowhere) == "SIGSEGV");
#if defined(__x86_64__)
  CHECK(end_of(divide_by_zero) == "SIGFPE");
#endif
  CHECK(end_of([] { std::abort(); }) == "SIGABRT");
  CHECK(end_of([] {
          const itimerval soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 1}};
          ::setitimer(ITIMER_REAL, &soon, nullptr);
          ::pause();
        }) == "SIGALRM");
}

TEST_CASE("a handler of the program stays its own, a child's end is not its parent's, and a guest notes nothing") {
  CHECK(end_of([] {
          ::signal(SIGUSR1, [](int) { ::_exit(3); });
          ::raise(SIGUSR1);
        }) == "nothing, 3");
  CHECK(end_of([] {
          if (::fork() == 0) ::raise(SIGUSR1);
          int status = 0;
          ::wait(&status);
          ::_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
        }) == "nothing, " + std::to_string(SIGUSR1));
  CHECK(end_of([] { ::raise(SIGHUP); }, KeptSignals::Keep::none) == "nothing, -1");
  ChildProcess child{[] {
    std::signal(SIGHUP, [](int) { ::_exit(4); });
    std::atomic<std::uint64_t> note = 0;
    EndingSignals signals{KeptSignals::Keep::both};
    signals.note_in(note);
    ::raise(SIGHUP);
    return 0;
  }};
  CHECK(child.wait() == 4);
}

TEST_CASE("names of signals") {
  CHECK(name_of_signal(SIGXFSZ) == "SIGXFSZ");
  CHECK(name_of_signal(SIGRTMIN + 3) == "SIGRTMIN+3");
  CHECK(name_of_signal(99) == "signal 99");
}

TEST_CASE("where both limits of CPU time are one, SIGXCPU comes before the kernel kills the process") {
  const auto soft_after = [](rlim_t soft, rlim_t hard) {
    const SharedNote result;
    ChildProcess child{[&] {
      rlimit limit{.rlim_cur = soft, .rlim_max = hard};
      ::setrlimit(RLIMIT_CPU, &limit);
      catch_cpu_limit();
      ::getrlimit(RLIMIT_CPU, &limit);
      *result = static_cast<std::uint32_t>(limit.rlim_cur);
      if (cpu_limit_reached()) return 1;
      ::raise(SIGXCPU);
      const std::string expected =
          soft == RLIM_INFINITY ? "has used up the CPU time that its scheduler allows (SIGXCPU)"
                                : "has used up its CPU time, " + std::to_string(soft) + " s (SIGXCPU, ulimit -t)";
      return cpu_limit_reached() == expected ? 0 : 2;
    }};
    CHECK(child.wait() == 0);
    return (*result).load();
  };
  CHECK(soft_after(60, 60) == 58);
  CHECK(soft_after(3, 3) == 2);
  CHECK(soft_after(50, 60) == 50);
  (void)soft_after(RLIM_INFINITY, RLIM_INFINITY);
}
