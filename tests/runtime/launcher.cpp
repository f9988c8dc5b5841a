// What a rank does to its launcher when a host is out of reach, and what it sees of the launcher's other processes.
#include "job/runtime/launcher.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "job/runtime/sibling_watch.hpp"
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

/// What a rank sees of another, first as a copy of the launcher that has the variables of an outer job, as in a job
/// that a rank of another starts. Returns 0, or the number of what is wrong.
int see_other_rank(pid_t other, const std::string& mark) {
  using Ranks = std::vector<std::pair<int, bool>>;  // and whether it has stopped
  const auto sees = [&](Look look, const Ranks& expected) {
    return eventually([&] {
      Ranks ranks;
      for (const auto& each : look_at_siblings(look).processes) ranks.emplace_back(each.rank, each.stopped);
      return ranks == expected;
    });
  };
  if (!sees(Look::at_all, {{3, false}})) return 1;
  std::ofstream{mark};
  if (!sees(Look::for_others, {{5, false}})) return 2;
  ::kill(other, SIGSTOP);
  if (!sees(Look::at_all, {{5, true}})) return 3;
  if (!sees(Look::for_others, {{5, false}})) return 4;
  ::kill(other, SIGKILL);
  // The launcher has not waited for it, so the system still lists it.
  return sees(Look::at_all, {}) ? 0 : 5;
}

}  // namespace

TEST_CASE("a rank remembers which ranks its launcher's processes are, and looks whether they run") {
  const TemporaryDirectory folder;
  const std::string mark = folder.path() / "goes-on";
  ChildProcess launcher{[&] {
    ::prctl(PR_SET_NAME, "sh");
    ::setenv("OMPI_COMM_WORLD_RANK", "3", 1);
    const std::string script =
        "until [ -e " + mark + " ]; do sleep 0.01; done; export OMPI_COMM_WORLD_RANK=5; exec sleep 60";
    const ChildProcess other{[&] { return ::execl("/bin/sh", "sh", "-c", script.c_str(), nullptr); }};
    ChildProcess rank{[&] { return see_other_rank(other.id(), mark); }};
    return rank.wait();
  }};
  CHECK(launcher.wait() == 0);
}

TEST_CASE("a deadline is kept while the ranks are watched, and at rest") {
  using namespace std::chrono_literals;
  std::atomic<int> late = 0;
  SiblingWatch watch{
      {.doing = "starting", .patience = 60s, .for_other_nodes = 60s, .signals = KeptSignals::Keep::none}};
  for (const int expected : {1, 2}) {
    watch.set_deadline(1ms, [&] { ++late; });
    CHECK(eventually([&] { return late == expected; }));
    watch.rest();
  }
}

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
