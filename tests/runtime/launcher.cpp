// What a rank does to its launcher when a host is out of reach.
#include "runtime/launcher.hpp"

#include <csignal>
#include <ctime>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/prctl.h>

#include "base/descriptor.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

enum Ending { as_it_should_be, told_too_rarely, rank_not_started };

/// Open MPI 5's launcher, which kills its rank when it is told to end for the first time.
int be_prterun(const std::string& locked) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  const auto is_told = [&] {
    constexpr timespec patience{.tv_sec = 20, .tv_nsec = 0};
    return ::sigtimedwait(&set, nullptr, &patience) == SIGTERM;
  };
  ::prctl(PR_SET_NAME, "prterun");
  const auto lock = [&](const Descriptor& file) { return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0; };
  ChildProcess rank{[&] {
    const Descriptor file{::open(locked.c_str(), O_RDWR | O_CLOEXEC)};
    if (!lock(file)) return 1;
    end_this_side(Error::ExitCode::stall, Reach::cut_off, 0);
  }};
  if (!is_told()) return rank_not_started;
  rank.signal(SIGKILL);
  (void)rank.wait();
  // Signals that nobody takes are one.
  const Descriptor file{::open(locked.c_str(), O_RDWR | O_CLOEXEC)};
  if (!eventually([&] { return lock(file); })) return told_too_rarely;
  return is_told() && is_told() ? as_it_should_be : told_too_rarely;
}

}  // namespace

TEST_CASE("Open MPI 5's launcher is told to end until it gives up, by a process that holds no lock of the rank's") {
  const TemporaryDirectory folder;
  const std::string locked = folder.write("lock", "");
  ChildProcess launcher{[&] { return be_prterun(locked); }};
  CHECK(launcher.wait() == as_it_should_be);
}
