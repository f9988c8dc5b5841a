// What lockstep-run makes of processes: those of its jobs, and others.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/signals.hpp"
#include "apps/lockstep-run/strangers.hpp"
#include "core/base/inherited_signals.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"

namespace lockstep::test::run_processes_cases {

using namespace lockstep::run;

namespace {

/// The number of a process that a shell has written to a file.
pid_t number_in(const std::filesystem::path& file) {
  pid_t number = 0;
  REQUIRE(test::eventually([&] { return static_cast<bool>(std::ifstream{file} >> number); }));
  return number;
}

bool is_there(pid_t process) {
  return ::kill(process, 0) == 0;
}

/// The exit code of a job, once nothing of it is left.
int code_once_over(RunningJob& job) {
  std::optional<int> code;
  while (!(code = job.poll())) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  job.end_what_is_left(std::chrono::milliseconds{50});
  return *code;
}

/// As a shell that has started programs and becomes lockstep-run, and to which orphans are left, as to process 1. 3 if
/// all is well.
int become_lockstep_run(const test::TemporaryDirectory& folder) {
  const auto file = [&](const char* name) { return (folder.path() / name).string(); };
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto start_older = [](const std::string& script) {
    if (::fork() == 0) ::execlp("sh", "sh", "-c", script.c_str(), nullptr);
  };
  start_older("sleep 1000 & echo $! > " + file("orphan"));
  start_older("until [ -s " + file("job") + " ]; do sleep 0.01; done; echo $$ > " + file("ended"));
  (void)part_from_strangers();
  const pid_t orphan = number_in(file("orphan"));
  {
    // A new session, two forks and an empty environment; and an orphan that ends while the job runs.
    const std::string script = folder.write("job.sh", R"(cd "${0%/*}"
        until_there() { until [ -s $1 ]; do sleep 0.01; done; }
        setsid env -i sh -c 'sleep 1000 & echo $! > left; exec sleep 1000' &
        sh -c 'sh -c "until [ -s lone ]; do sleep 0.01; done" & echo $! > zombie'
        echo > lone; until_there left; echo > job; until_there go; exit 3)");
    RunningJob job{{"sh", script}, {}};
    const auto is_gone = [&](const char* name) {
      (void)job.poll();
      return !is_there(number_in(file(name)));
    };
    if (!test::eventually([&] { return is_gone("zombie"); })) return 11;
    if (!test::eventually([&] { return is_gone("ended"); })) return 12;
    std::ofstream{file("go")} << '\n';
    if (code_once_over(job) != 3) return 13;
  }
  if (is_there(number_in(file("left"))) || !children_of(::getpid()).empty()) return 14;
  return is_there(orphan) ? 3 : 15;
}

}  // namespace

TEST_CASE("others' processes that become children live on, and are waited for; a job's end with it, whatever they do") {
  const test::TemporaryDirectory folder;
  test::ChildProcess shell{[&] { return become_lockstep_run(folder); }};
  CHECK(shell.wait() == 3);
  const pid_t orphan = number_in(folder.path() / "orphan");
  CHECK(::kill(orphan, SIGKILL) == 0);
  (void)::waitpid(orphan, nullptr, 0);  // if it was left to this process
}

TEST_CASE("process 1 of a container finds its job's processes, also where /proc shows those of the host") {
  const test::TemporaryDirectory folder;
  constexpr int not_allowed = 77;
  test::ChildProcess outside{[&] {
    if (::unshare(CLONE_NEWPID) != 0) return not_allowed;
    // Its end is that of all in there.
    const pid_t first = ::fork();
    if (first == 0) ::_exit(become_lockstep_run(folder));
    int status = 0;
    (void)::waitpid(first, &status, 0);
    return WEXITSTATUS(status);
  }};
  const int code = outside.wait();
  if (code == not_allowed)
    WARN("not tested: this user can make no namespace of processes");
  else
    CHECK(code == 3);
}

TEST_CASE("signals are passed on one by one, and those that come past the one who passes them on do not count") {
  const test::TemporaryDirectory folder;
  test::ChildProcess first{[&] {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const auto passes_on = part_from_strangers();
    const Signals signals{passes_on};
    // As Ctrl-C does, to all of a group.
    ::raise(SIGINT);
    std::ofstream{folder.path() / "ready"};
    std::vector<int> taken;
    while (taken.size() < 3)
      if (const auto signal = signals.take(); signal && *signal != SIGCHLD) taken.push_back(*signal);
    return taken == std::vector{SIGINT, SIGINT, SIGTERM} ? 7 : 8;
  }};
  REQUIRE(test::eventually([&] { return std::filesystem::exists(folder.path() / "ready"); }));
  const std::vector<pid_t> children = children_of(first.id());
  REQUIRE(children.size() == 1);
  for (const int each : {SIGINT, SIGUSR1}) ::kill(children.front(), each);
  // One of a kind would take the place of the next.
  first.signal(SIGINT);
  const auto has_taken = [&] {
    std::ifstream status{fmt::format("/proc/{}/status", first.id())};
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("ShdPnd:")) return line.find_first_not_of("0", line.find('\t') + 1) == line.npos;
    return true;
  };
  CHECK(test::eventually(has_taken));
  first.signal(SIGINT);
  CHECK(test::eventually(has_taken));
  first.signal(SIGTERM);
  CHECK(first.wait() == 7);
}

TEST_CASE("where no other process can become a child, this one goes on itself") {
  test::ChildProcess process{[] {
    const pid_t self = ::getpid();
    return !part_from_strangers() && ::getpid() == self ? 0 : 1;
  }};
  CHECK(process.wait() == 0);
}

TEST_CASE("children that were there before a job are neither waited for nor killed, and are no ranks") {
  adopt_orphans();
  ::setenv("PMI_RANK", "3", 1);
  const pid_t stranger = start_child({"sleep", "1000"}, {}, {STDOUT_FILENO, STDERR_FILENO});
  CHECK_FALSE(is_rank(stranger));
  ::unsetenv("PMI_RANK");
  CHECK(is_rank(stranger));
  {
    // Its last child is left to this process.
    RunningJob job{{"sh", "-c", "sh -c 'sleep 0.1; sleep 0.1 &' & exit 3"}, {}};
    while (job.poll() != 3) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    job.end_what_is_left();
  }
  CHECK(children_of(::getpid()) == std::vector{stranger});
  CHECK(::kill(stranger, SIGKILL) == 0);
  int status = 0;
  CHECK(::waitpid(stranger, &status, 0) == stranger);
}

TEST_CASE("each of a job's ranks gets a signal that would end its launcher, if it handles that") {
  CHECK_FALSE(handles(::getpid(), SIGUSR2));
  CHECK_FALSE(handles(1 << 30, SIGUSR2));
  const auto code_of = [](const char* script, const std::function<void(RunningJob&)>& meanwhile) {
    RunningJob job{{"sh", "-c", script}, {}};
    std::optional<int> code;
    while (!(code = job.poll())) {
      meanwhile(job);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return *code;
  };
  // The first rank is stopped.
  const char* const starts_ranks = R"(PMI_RANK=3 sh -c 'trap : USR2; kill -STOP $$' &
      until grep -q 'State:.T' /proc/$!/status; do sleep 0.01; done
      PMI_RANK=4 sh -c 'trap "exit 7" USR2; for i in $(seq 300); do sleep 0.01; done'
      code=$?; kill -KILL $!; exit $code)";
  CHECK(code_of(starts_ranks, [](RunningJob& job) { (void)job.signal_ranks(SIGUSR2); }) == 7);
  CHECK(code_of("PMI_RANK=3 sh -c 'sleep 0.1'", [](RunningJob& job) { CHECK_FALSE(job.signal_ranks(SIGUSR2)); }) == 0);
}

TEST_CASE("what is ignored when lockstep-run starts, as under nohup, is no wish to stop") {
  sigset_t before;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGCHLD, SIG_IGN);
  {
    settle_inherited_signals();
    const Signals signals;
    for (const int each : {SIGHUP, SIGUSR1}) ::raise(each);
    CHECK(signals.take() == SIGUSR1);
    CHECK_FALSE(signals.take());
    // Between two jobs, there are no ranks to ask where they are.
    for (const int each : {SIGUSR2, SIGTERM}) ::raise(each);
    CHECK(signals.take_within(std::chrono::milliseconds{0}) == SIGTERM);
    RunningJob job{{"sh", "-c", "exit 3"}, {}};
    std::optional<int> code;
    for (int looks = 0; looks < 5000 && !(code = job.poll()); ++looks)
      signals.take_within(std::chrono::milliseconds{1});
    CHECK(code == 3);
  }
  for (const int each : {SIGHUP, SIGPIPE, SIGXFSZ}) ::signal(each, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace lockstep::test::run_processes_cases
