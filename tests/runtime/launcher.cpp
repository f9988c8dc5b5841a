// What a rank does to its launcher when a host is out of reach, and what it sees of the launcher's other processes.
#include "job/runtime/launcher.hpp"

#include <csignal>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "job/runtime/siblings.hpp"
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

TEST_CASE("others see how far a process has come into the job") {
  const TemporaryDirectory folder;
  const auto seen_of = [&](const std::string& name, const std::function<void()>& prepare) {
    const auto mark = folder.path() / (name + ".ready");
    ChildProcess process{[&] {
      prepare();
      folder.write(mark.filename(), "");
      ::pause();
      return 0;
    }};
    REQUIRE(eventually([&] { return std::filesystem::exists(mark); }));
    const Joined running = how_far(process.id());
    process.signal(SIGKILL);
    (void)process.wait();
    CHECK(how_far(process.id()) == Joined::unknown);
    return running;
  };
  CHECK(seen_of("other", [] {}) == Joined::nothing);
  CHECK(seen_of("mpi", [&] {
          const Descriptor plugin{::open(folder.write("mca_example.so", "text").c_str(), O_RDONLY | O_CLOEXEC)};
          (void)::mmap(nullptr, 4, PROT_READ, MAP_PRIVATE, plugin.get(), 0);
        }) == Joined::mpi);
  CHECK(seen_of("runtime", [] { ::prctl(PR_SET_NAME, thread_of_runtime); }) == Joined::runtime);
}

TEST_CASE("Open MPI 5's launcher is told to end until it gives up, by a process that holds no lock of the rank's") {
  const TemporaryDirectory folder;
  const std::string locked = folder.write("lock", "");
  ChildProcess launcher{[&] { return be_prterun(locked); }};
  CHECK(launcher.wait() == as_it_should_be);
}
