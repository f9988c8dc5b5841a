// What a process has inherited, as far as this layer sets it: signals, floating-point modes, limits.
#include <cerrno>
#include <cfenv>
#include <cfloat>
#include <csignal>
#include <string>
#include <thread>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "core/base/descriptor.hpp"
#include "core/base/floating_point_modes.hpp"
#include "core/base/inherited_signals.hpp"
#include "core/base/system_error.hpp"
#include "support/child_process.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;

namespace {

/// 1 + a quarter of the last place, as this thread rounds it.
float rounded() {
  volatile float one = 1, little = FLT_EPSILON / 4;
  return one + little;
}

/// Half of the smallest normal number, as this thread makes it.
float half_of_smallest() {
  volatile float smallest = FLT_MIN;
  return smallest / 2;
}

}  // namespace

TEST_CASE("floating-point modes are named, reset for a while or for good, and restored") {
  CHECK(changed_floating_point_modes().empty());
  std::fesetround(FE_UPWARD);
  CHECK(changed_floating_point_modes() == "results are rounded upward");
  REQUIRE(rounded() > 1);
  {
    const StartingFloatingPointModes modes;
    CHECK(changed_floating_point_modes().empty());
    CHECK(rounded() == 1);
    // A thread begins with the modes of its parent.
    std::thread{[] { CHECK(rounded() == 1); }}.join();
  }
  CHECK(changed_floating_point_modes() == "results are rounded upward");
  reset_floating_point_modes();
  CHECK(changed_floating_point_modes().empty());
  CHECK(rounded() == 1);
}

#if defined(__x86_64__)
TEST_CASE("subnormal numbers are not flushed, and traps stay as they are") {
  constexpr unsigned ftz = 0x8000, daz = 0x0040, traps_invalid = 0x0080;
  const unsigned before = _mm_getcsr();
  _mm_setcsr((before | ftz | daz) & ~traps_invalid);
  CHECK(changed_floating_point_modes() == "subnormal results become 0 (FTZ), subnormal operands count as 0 (DAZ)");
  REQUIRE(half_of_smallest() == 0);
  {
    const StartingFloatingPointModes modes;
    CHECK(half_of_smallest() > 0);
    CHECK((_mm_getcsr() & traps_invalid) == 0);
  }
  CHECK((_mm_getcsr() & (ftz | daz)) == (ftz | daz));
  reset_floating_point_modes();
  CHECK(half_of_smallest() > 0);
  CHECK((_mm_getcsr() & traps_invalid) == 0);
  _mm_setcsr(before);
}
#endif

TEST_CASE("no signal that a parent has blocked or ignored changes what a program does, but those that nohup ignores") {
  ChildProcess child{[] {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    for (const int signal : {SIGCHLD, SIGHUP, SIGINT}) std::signal(signal, SIG_IGN);
    settle_inherited_signals();
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    for (int signal = 1; signal < NSIG; ++signal)
      if (::sigismember(&blocked, signal) == 1) return 1;
    const auto is = [](int signal, void (*handler)(int)) {
      struct sigaction now = {};
      return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == handler;
    };
    const bool as_said = is(SIGCHLD, SIG_DFL) && is(SIGHUP, SIG_IGN) && is(SIGINT, SIG_IGN) && is(SIGTERM, SIG_DFL) &&
                         is(SIGPIPE, SIG_IGN) && is(SIGXFSZ, SIG_IGN);
    return as_said ? 0 : 2;
  }};
  CHECK(child.wait() == 0);
}

TEST_CASE("a write beyond the limit of a file's size fails, and the text of the error names the limit") {
  ChildProcess child{[] {
    let_writes_fail();
    const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Descriptor file{::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
    const std::string bytes(4097, 'x');
    if (::write(file.get(), bytes.data(), bytes.size()) != 4096) return 1;
    if (::write(file.get(), "x", 1) != -1 || errno != EFBIG) return 2;
    return error_text(EFBIG) == "File too large (this process may make files of 4096 bytes, ulimit -f)" ? 0 : 3;
  }};
  CHECK(child.wait() == 0);
}

TEST_CASE("the text of an error names the limit of open files, and nothing where no limit is behind it") {
  ChildProcess child{[] {
    const rlimit limit{.rlim_cur = 50, .rlim_max = 50};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (error_text(EMFILE) != "Too many open files (this process may open 50 files, ulimit -n)") return 1;
    return error_text(ENOENT) == "No such file or directory" ? 0 : 2;
  }};
  CHECK(child.wait() == 0);
}
