// The parts of lockstep-run that deal with hosts: which they are, whether they answer, and what is done for one that
// does not.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/child.hpp"
#include "apps/lockstep-run/host_inquiry.hpp"
#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/job_report.hpp"
#include "apps/lockstep-run/lost_host_watch.hpp"
#include "apps/lockstep-run/process_tree.hpp"
#include "apps/lockstep-run/running_job.hpp"
#include "apps/lockstep-run/start_watch.hpp"
#include "run_words.hpp"
#include "support/child_process.hpp"
#include "support/file_faults.hpp"
#include "support/job.hpp"
#include "support/refused_options.hpp"

namespace lockstep::test::run_hosts_cases {

using namespace lockstep::run;

namespace {

/// As of processes of another user.
bool kills_nobody = false;

}  // namespace

extern "C" int kill(pid_t process, int signal) noexcept {
  if (!kills_nobody) return static_cast<int>(::syscall(SYS_kill, process, signal));
  errno = EPERM;
  return -1;
}

TEST_CASE("a host answers where a program can be started, and what waits for one that does not is ended") {
  adopt_orphans();
  const test::TemporaryDirectory folder;
  // What mpirun says is not always the same.
  const std::string first = (folder.path() / "asked").string();
  const Texts mpirun{"sh", "-c",
                     fmt::format("case $3 in odd) exit 3;; bad) exit 255;; never) exit 1;; mute) sleep 1000;; esac; "
                                 "[ -e {0}$3 ] && [ $3 = shy ] && exit 255; [ -e {0}$3 ] && exit 0; touch {0}$3; "
                                 "[ $3 = shy ] && exit 1; exit 255",
                                 first)};
  const auto ask = [&](const Texts& hosts) {
    HostInquiry inquiry{mpirun, hosts, std::chrono::seconds{2}};
    while (!inquiry.poll()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    CHECK(children_of(::getpid()).empty());
    return std::pair{inquiry.silent(), inquiry.unreachable()};
  };
  CHECK(ask({}) == std::pair<Texts, Texts>{});
  CHECK(ask({"odd", "mute", "bad", "never"}) == std::pair{Texts{"mute"}, Texts{"bad", "never"}});
  // It may be a mistake in the options, unless a host answers: here this one, the second time.
  CHECK(ask({"never"}).second.empty());
  CHECK(ask({"never"}).second == Texts{"never"});
  CHECK(ask({"shy"}).second == Texts{"shy"});
  CHECK(ask({"late"}).second.empty());
  {
    // Where Slurm has a name for this host, srun is asked for that, beside the steps of the job.
    const std::string srun = folder.write("srun", "#!/bin/sh\n[ $SLURM_OVERLAP$4 = 1here ] || exit 1\n").string();
    std::filesystem::permissions(srun, std::filesystem::perms::owner_all);
    ::setenv("SLURMD_NODENAME", "here", 1);
    HostInquiry inquiry{{srun}, {"a"}};
    while (!inquiry.poll()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    ::unsetenv("SLURMD_NODENAME");
    CHECK(inquiry.unreachable() == Texts{"a"});
  }
  // Without a process to spare, nobody is blamed.
  HostInquiry impossible{{"/proc/none"}, {"a"}};
  CHECK(impossible.poll());
  CHECK((impossible.silent().empty() && impossible.unreachable().empty()));
  // More than are asked at the same time.
  CHECK(ask(Texts(70, "bad")).second.size() == 70);
  {
    HostInquiry given_up{mpirun, {"mute"}};
    CHECK_FALSE(given_up.poll());
  }
  CHECK(children_of(::getpid()).empty());
}

TEST_CASE("an answer that cannot be read is one, and what asks a host and cannot be ended is left alone") {
  adopt_orphans();
  const auto ask = [](const std::string& script) {
    HostInquiry inquiry{{"sh", "-c", script}, {"a"}, std::chrono::milliseconds{50}};
    while (!inquiry.poll()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return std::tuple{inquiry.silent(), inquiry.unreachable(), inquiry.answer("a")};
  };
  {
    const test::FileFault unreadable{{.place = "memfd:answer", .call = 0, .error = EIO, .name = "pread"}};
    test::CapturedStderr captured;
    CHECK(ask("echo here") == std::tuple{Texts{}, Texts{}, std::string{}});
    CHECK(captured.text() ==
          "lockstep-run: the answer of host a is lost: what mpirun said: cannot be read: Input/output error\n");
  }
  kills_nobody = true;
  CHECK(ask("exec sleep 1000") == std::tuple{Texts{"a"}, Texts{}, std::string{}});
  kills_nobody = false;
  const std::vector<pid_t> left = children_of(::getpid());
  REQUIRE(left.size() == 1);
  // Nor does a job wait for it.
  RunningJob job{{"true"}, {}};
  while (!job.poll()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  job.end_what_is_left(std::chrono::milliseconds{0});
  CHECK(children_of(::getpid()) == left);
  CHECK(::kill(left.front(), SIGKILL) == 0);
  CHECK(::waitpid(left.front(), nullptr, 0) == left.front());
}

TEST_CASE("hosts that answer are asked once of a program that need not say that it has begun") {
  using Clock = StartWatch::Clock;
  StartWatch watch{{.timeout = std::chrono::milliseconds{1}, .mpirun = {"true"}, .hosts = {"a"}}};
  auto found = StartWatch::Finding::nothing;
  while ((found = watch.look(Begun::nowhere)) == StartWatch::Finding::nothing)
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  CHECK(found == StartWatch::Finding::all_answer);
  for (const auto since = Clock::now(); Clock::now() - since < std::chrono::milliseconds{5};) {
    CHECK(watch.look(Begun::nowhere) == StartWatch::Finding::nothing);
    REQUIRE_FALSE(watch.is_asking());
  }
}

TEST_CASE(
    "while ranks run on this host alone, others are asked: the job is ended for one that is silent, not for its time") {
  const test::TemporaryDirectory folder;
  const std::string mpirun = folder.write("mpirun", "#!/bin/sh\n[ $4 = mute ] && exit 255 || exit 0\n").string();
  std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
  const auto findings = [&](const Texts& hosts) {
    StartWatch watch{
        {.timeout = std::chrono::milliseconds{1}, .mpirun = {mpirun}, .hosts = hosts, .ends_for_no_host = true}};
    std::vector<StartWatch::Finding> found;
    while (found.size() < 3 && (found.empty() || found.back() != StartWatch::Finding::not_begun)) {
      if (const auto each = watch.look(Begun::here); each != StartWatch::Finding::nothing) found.push_back(each);
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return found;
  };
  CHECK(findings({"a"}) == std::vector(3, StartWatch::Finding::all_answer));
  CHECK(findings({"a", "mute"}) == std::vector{StartWatch::Finding::not_begun});
}

TEST_CASE("a job whose ranks cannot reach a host has 10 s to end, and one that calls another host has any time") {
  const auto ended_after = [](std::string_view line) -> std::optional<int> {
    JobReader reader;
    LostHostWatch watch;
    const LostHostWatch::Clock::time_point begin{};
    for (int second = 0; second < 100; ++second) {
      if (second == 5) reader.take(line);
      if (watch.look(reader.report(), begin + std::chrono::seconds{second})) return second;
    }
    return std::nullopt;
  };
  const std::string lost = "replica 2 (worker:2, host b) cannot be reached: no sign of life from any rank of its host";
  CHECK(ended_after("lockstep: " + lost + " for 2 s\n") == 15);
  for (const std::string& other :
       {"[rank 0] warning: " + lost + '\n', std::string{"ssh: connect to host b port 22: x\n"},
        std::string{"lockstep: replica 2 (worker:2, host b) is gone: its process ended\n"}})
    CHECK(ended_after(other) == std::nullopt);
}

TEST_CASE("hosts are read as mpirun reads them, and told from each other by what they are called") {
  CHECK(parse_host_list("--host", "a:2,b,a:1") == std::vector<Host>{{"a", 3}, {"b", 1}});
  CHECK(to_host_list(std::vector<Host>{{"a", 2}, {"b", 2}, {"c", 4}}) == "a:2,b:2,c:4");
  for (const char* wrong : {"", "a,,b", ":2", "a:0", "a:x", "-x:2", "a,--hostfile:2", "u@-oProxyCommand=x:1"})
    CHECK_THROWS_AS(parse_host_list("--host", wrong), ConfigError);
  CHECK(parse_hostfile("# two\na slots=2\n\n b  slots=4 max_slots=4 # big\n", "hosts") ==
        std::vector<Host>{{"a", 2}, {"b", 4}});
  std::string often;
  for (int line = 0; line < 2048; ++line) often += "a slots=1048576\n";
  CHECK(slots_of(parse_hostfile(often, "hosts")) == 1 << 20);
  test::check_all_refused(
      {{{"a slots=2\nb\n"}, {"hosts:2: b has no slots=N; expected the number of ranks that it takes"}},
       {{"a slots=x\n"}, {"hosts:1: x: expected a whole number"}},
       {{"a speed=2\n"}},
       {{"\n"}},
       {{"fe80::1 slots=2\n"}, {"hosts:1: fe80::1: expected", "mpirun takes no IPv6 address"}},
       {{"-x slots=2\n"}, {"hosts:1: -x: expected the name of a host, which begins with no '-'"}}},
      [](const Texts& file) { (void)parse_hostfile(file.front(), "hosts"); });

  const std::vector<Host> hosts{{"a.cluster", 1}, {"10.0.0.2", 1}, {"localhost", 1}};
  CHECK(find_host(hosts, "a", "vm") == 0u);
  CHECK(find_host(hosts, "A", "vm") == 0u);
  CHECK(elsewhere(hosts, "A") == Texts{"10.0.0.2"});
  CHECK(find_host(hosts, "10.0.0.2", "vm") == 1u);
  CHECK(find_host(hosts, "vm", "vm.cluster") == 2u);
  CHECK_FALSE(find_host(hosts, "10.0.0.3", "vm"));
  CHECK_FALSE(find_host(hosts, "", "vm"));
  CHECK(elsewhere(hosts, "a") == Texts{"10.0.0.2"});
  // What ssh and the job say of a host has no name of a user.
  const std::vector<Host> users{{"u@b", 1}, {"u@10.0.0.2", 1}};
  CHECK(find_host(users, "b.cluster", "vm") == 0u);
  CHECK(find_host(users, "10.0.0.2", "vm") == 1u);
  CHECK(elsewhere(users, "b") == Texts{"u@10.0.0.2"});
}

}  // namespace lockstep::test::run_hosts_cases
