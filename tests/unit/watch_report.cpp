// Which process of a job reports its end.
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/descriptor.hpp"
#include "core/watch/report_claim.hpp"
#include "support/child_process.hpp"
#include "support/phase_rows.hpp"
#include "support/run_tests.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;
using lockstep::test::eventually;
using lockstep::test::skip;
using lockstep::test::Table;

namespace {

/// A rank of the job of that name, started by this process as the others are, that claims the report and stays.
ChildProcess claiming_rank(const char* job) {
  return ChildProcess{[job] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    if (!claim_report(nullptr, 4)) return 1;
    return ::pause();
  }};
}

/// What another rank of that job is told: 1 that it may report.
int claims(const char* job, PhaseTable* table = nullptr) {
  ChildProcess rank{[&] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    return claim_report(table, 4) ? 1 : 0;
  }};
  return rank.wait();
}

bool is_claimed(const char* job) {
  ChildProcess rank{[&] {
    ::setenv("PMIX_NAMESPACE", job, 1);
    return report_is_claimed() ? 1 : 0;
  }};
  return rank.wait() == 1;
}

}  // namespace

TEST_CASE("one rank of a job claims the report, until it is gone") {
  CHECK_FALSE(is_claimed("a job"));
  const ChildProcess first = claiming_rank("a job");
  REQUIRE(eventually([] { return is_claimed("a job"); }));
  CHECK(claims("a job") == 0);
  CHECK(claims("another job") == 1);
  first.signal(SIGKILL);
  first.wait_for_end();
  CHECK_FALSE(is_claimed("a job"));
}

TEST_CASE("a report that was claimed in the phase table stays claimed") {
  Table table;
  CHECK(claims("a job with a table", &table.rows) == 1);
  CHECK(claims("a job with a table", &table.rows) == 0);
  CHECK(table.rows.reported());
  CHECK(table.rows.code_of_report(5) == 4);
}

TEST_CASE("where the launcher names no job, the phase table decides alone") {
  REQUIRE(std::getenv("PMIX_NAMESPACE") == nullptr);
  Table table;
  CHECK(table.rows.code_of_report(5) == 5);
  CHECK(claim_report(&table.rows, {}));
  CHECK_FALSE(claim_report(&table.rows, 4));
  CHECK(table.rows.code_of_report(5) == 5);
  CHECK(claim_report(nullptr, 4));
  CHECK_FALSE(report_is_claimed());
}

namespace {

/// The result of `body` as the first process of a namespace of processes; 77 where there can be none.
int in_own_namespace(const std::function<int()>& body) {
  if (::unshare(CLONE_NEWPID) != 0) return 77;
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
  }
  int status = 0;
  return ::waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

}  // namespace

TEST_CASE("jobs in containers that share a network each have a report, though their processes have the same numbers") {
  const char* const job = "a job in a container";
  int claimed[2];
  REQUIRE(::pipe(claimed) == 0);
  ChildProcess one{[&] {
    return in_own_namespace([&] {
      const ChildProcess rank = claiming_rank(job);
      if (!eventually([&] { return is_claimed(job); })) return 2;
      return ::write(claimed[1], "y", 1) == 1 ? ::pause() : 3;
    });
  }};
  ::close(claimed[1]);
  char yes = 'n';
  const bool is_there = ::read(claimed[0], &yes, 1) == 1;
  ::close(claimed[0]);
  if (!is_there && one.wait() == 77) return skip("only root can make namespaces");
  REQUIRE(is_there);
  ChildProcess other{[&] { return in_own_namespace([&] { return claims(job); }); }};
  CHECK(other.wait() == 1);
}

namespace {

std::string name_of_report(const char* job, pid_t launcher) {
  return fmt::format("lockstep report {} {} of {}", job, launcher,
                     std::filesystem::read_symlink("/proc/self/ns/pid").string());
}

/// Binds the name that the job of that name would claim with, of the ranks that `launcher` started, before they do.
enum class Squat { silently, as_another_user };
int squat(const char* job, pid_t launcher, Squat how) {
  if (how == Squat::as_another_user && ::setresuid(65534, 65534, 65534) != 0) return 98;
  const Descriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const std::string name = name_of_report(job, launcher);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 97;
  if (how == Squat::as_another_user && ::listen(socket.get(), 1) != 0) return 96;
  return ::pause();
}

bool is_bound(const std::string& name) {
  std::ifstream sockets{"/proc/net/unix"};
  for (std::string line; std::getline(sockets, line);)
    if (line.ends_with("@" + name)) return true;
  return false;
}

}  // namespace

TEST_CASE("whoever takes a job's name before it does silences nobody") {
  const Squat how = GENERATE(Squat::silently, Squat::as_another_user);
  if (how == Squat::as_another_user && ::geteuid() != 0) return skip("only root can be another user");
  const char* const job = how == Squat::silently ? "a job with a silent stranger" : "a job with a strange user";
  const pid_t launcher = ::getpid();
  ChildProcess stranger{[&] { return squat(job, launcher, how); }};
  REQUIRE(eventually([&] { return is_bound(name_of_report(job, launcher)); }));
  CHECK_FALSE(is_claimed(job));
  const ChildProcess first = claiming_rank(job);
  REQUIRE(eventually([&] { return is_claimed(job); }));
  CHECK(claims(job) == 0);
  // Also once the stranger has gone.
  stranger.signal(SIGKILL);
  CHECK(stranger.wait() == -SIGKILL);
  CHECK(claims(job) == 0);
}
