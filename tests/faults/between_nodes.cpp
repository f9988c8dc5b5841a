// Faults of a job on several hosts: a rank there is found from here, and a host that is out of reach is said to be.
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "faults/running_job.hpp"
#include "support/hosts.hpp"
#include "support/run_tests.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

/// For as long as a stopped or silent rank is waited for, and what the end of a job may take.
constexpr auto stall_timeout = 2s;
constexpr auto limit = stall_timeout + 5s;

Launch on(const Hosts& hosts, int ranks_each, const Arguments& mpirun_arguments = keepalive()) {
  return [&hosts, ranks_each, mpirun_arguments](const Arguments& arguments, const CommandOptions& options) {
    return run_job_on(hosts, ranks_each, arguments, options, mpirun_arguments);
  };
}

/// Sends a signal to a rank, or to mpirun where there is no rank.
End send_to(std::optional<int> rank, int signal, const Hosts& hosts, int ranks_each) {
  End end = end_of(on(hosts, ranks_each), [&](RunningJob& job) { job.send(signal, rank); });
  CHECK(hosts.sessions_left().empty());
  return end;
}

/// A rank that SIGKILL or SIGSTOP hit is named.
void check_fault(const End& end, int rank, int signal, const std::string& told) {
  INFO("rank: " << rank << ", signal: " << signal << "\nstderr: " << end.outcome.err);
  CHECK(end.after < on_this_machine(limit));
  if (signal == SIGKILL && may_be_unnamed(end.outcome.exit_code)) return;
  CHECK(end.outcome.exit_code == (signal == SIGKILL ? code_of_killed() : 5));
  check_blames(end.outcome.err, rank, told);
}

bool is_silenced(const End& end) {
  return interrupted_job_may_be_silent && lines_starting_with(end.outcome.err, "lockstep:").empty();
}

/// The lowest rank of the host that is out of reach is named.
void check_cut_off(const End& end, int rank, const std::string& host) {
  const bool is_silent = lines_starting_with(end.outcome.err, "lockstep:").empty();
  const bool is_named = names_lost_host && end.outcome.err.find("Remote daemon:") != std::string::npos;
  CHECK((end.outcome.exit_code != 0 || is_named));
  if (names_lost_host && is_silent) {
    CHECK_THAT(end.outcome.err, Catch::Contains("on node " + host));
    return;
  }
  check_blames(end.outcome.err, rank, "cannot be reached: no sign of life from any rank of its host for 2 s");
}

std::ptrdiff_t count_of(const std::string& text, const std::string& part) {
  std::ptrdiff_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

End cut_off(int host, const Hosts& hosts, int ranks_each, const Arguments& mpirun_arguments = keepalive()) {
  return end_of(on(hosts, ranks_each, mpirun_arguments),
                [&](RunningJob& job) { job.suffer([&] { hosts.cut(host); }); });
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto reason = Hosts::why_not()) {
    fmt::print("skipped: this machine cannot play several hosts: {}\n", *reason);
    return 77;
  }
  return run_tests(argc, argv);
}

TEST_CASE("a job on two hosts ends with the bits of one on one host, and the hosts hear each other") {
  const Hosts hosts{2};
  const Outcome outcome = run_job_on(hosts, 2, short_run());
  INFO("stderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "[rank 0] warning").empty());
  CHECK(Json::parse(outcome.out).at("weights_digest") == train(4, {"--hidden", "16", "--steps", "3"}).digest());
  CHECK(hosts.sessions_left().empty());

  const Outcome compressed = run_job_on(hosts, 2, short_run() + Arguments{"--compress-gradients", "bf16"});
  REQUIRE(compressed.exit_code == 0);
  const Json rounded = Json::parse(compressed.out), plain = Json::parse(outcome.out);
  CHECK(rounded.at("weights_digest") != plain.at("weights_digest"));
  CHECK(rounded.at("train_loss").get<double>() == Approx(plain.at("train_loss").get<double>()).epsilon(0.01));
}

TEST_CASE("tasks on other hosts than the spec names are refused before the training") {
  const Hosts hosts{2};
  const TemporaryDirectory folder;
  const std::string spec =
      fmt::format(R"({{"cluster": {{"worker": ["{}:1", "{}:1"]}}}})", hosts.names()[1], hosts.names()[0]);
  check_refused(run_job_on(hosts, 1, short_run() + Arguments{"--cluster-spec", folder.write("cluster.json", spec)}),
                {"worker:0 is named to be on " + hosts.names()[1] + ", but mpirun started it on " + hosts.names()[0]});
}

TEST_CASE("a job on two hosts that is asked, by one rank's signal or by one to all, says once where all are",
          "[extended]") {
  const Hosts hosts{2};
  const SharedMemory memory;
  const TemporaryDirectory folder;
  const std::filesystem::path table = folder.path() / "run/where.txt";
  RunningJob job{on(hosts, 1),
                 without_end(),
                 memory,
                 {"--run-dir", folder.path() / "run", "--data", small_data(), "--hidden", "16"}};
  job.wait_until_it_trains();
  std::vector<std::optional<int>> asked{1};
  if (passes_questions_on) asked.emplace_back();
  for (const std::optional<int> rank : asked) {
    job.send(SIGUSR2, rank);
    job.wait_until([&] { return std::filesystem::exists(table); });
    const std::string text = read_file(table);
    INFO(text);
    for (const int each : {0, 1}) {
      CHECK(count_of(text, fmt::format("  replica {0} (worker:{0}, host {1}) ", each, hosts.names()[each])) == 1);
      CHECK(count_of(text, fmt::format(" {} ", job.find(each).value())) >= 1);
    }
    CHECK(count_of(text, " MiB  ") == 4);
    std::filesystem::remove(table);
  }
  job.send(SIGUSR1, std::nullopt);
  std::chrono::duration<double> after{0};
  const Outcome outcome = job.end(after);
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 75);
  CHECK(count_of(outcome.err, "Where the 2 ranks are, ") == static_cast<int>(asked.size()));
}

TEST_CASE("where datagrams do not get through, rank 0 says so, and the job goes on without", "[long]") {
  const Hosts hosts{2};
  hosts.silence_datagrams(1);
  // For longer than the stall timeout: rank 1 hears datagrams of rank 0, and rank 0 none.
  const Outcome outcome =
      run_job_on(hosts, 1, {"--data", small_data(), "--hidden", "16", "--steps", "1500", "--stall-timeout", "1"});
  INFO("stderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(nlohmann::json::parse(outcome.out).at("seconds").get<double>() > 1);
  CHECK(lines_starting_with(outcome.err, "[rank 0] warning: heartbeats do not get through between all nodes by UDP")
            .size() == 1);
  CHECK(lines_starting_with(outcome.err, "[rank 1] warning").empty());
}

namespace {

/// They end no job, and a rank that `signal` stops or kills then is named.
void check_without_datagrams(int signal, int ranks_each, const std::vector<int>& hosts_without) {
  const int rank = 2 * ranks_each - 1;
  const Hosts hosts{2};
  const End end = end_of(on(hosts, ranks_each), [&](RunningJob& job) {
    for (const int host : hosts_without) hosts.silence_datagrams(host);
    std::this_thread::sleep_for(2 * stall_timeout);
    CHECK_FALSE(job.is_over());
    job.send(signal, rank);
  });
  INFO("stderr: " << end.outcome.err);
  check_fault(end, rank, signal, signal == SIGKILL ? "is gone" : "has stopped: no sign of life for 2 s");
  CHECK(count_of(end.outcome.err, "do not get through by UDP: they go by TCP") == 1);
}

}  // namespace

TEST_CASE("datagrams of all hosts that cease under way end no job, and a rank that stops then is named",
          "[long][extended]") {
  check_without_datagrams(SIGSTOP, 1, {0, 1});
}
TEST_CASE("datagrams of one host that cease under way end no job, and a rank that dies then is named", "[long]") {
  check_without_datagrams(SIGKILL, 1, {0});
}
TEST_CASE("datagrams of one host of two ranks that cease end no job, and a rank that stops then is named",
          "[long][extended]") {
  check_without_datagrams(SIGSTOP, 2, {1});
}

namespace {

void check_any(int rank, int signal) {
  const Hosts hosts{2};
  const End end = send_to(rank, signal, hosts, 2);
  check_fault(end, rank, signal,
              signal == SIGKILL ? "is gone: its process ended" : "has stopped: no sign of life for 2 s");
  CHECK((signal == SIGKILL || end.after > 1.5s));
}

}  // namespace

TEST_CASE("a rank that is killed on another host is named, and the job ends within 5 s of the stall timeout",
          "[long][B-46]") {
  check_any(3, SIGKILL);
}
TEST_CASE("so is one that is killed beside it, or on the host of mpirun", "[extended]") {
  check_any(GENERATE(0, 1, 2), SIGKILL);
}

TEST_CASE("a rank that is stopped on another host is named, and the job ends within 5 s of the stall timeout",
          "[long][B-45]") {
  check_any(2, SIGSTOP);
}
TEST_CASE("so is one that is stopped on the host of mpirun", "[extended]") {
  check_any(GENERATE(0, 1), SIGSTOP);
}

TEST_CASE(
    "mpirun that is interrupted or terminated takes the ranks of all hosts along, and one line says in which step") {
  const auto [signal, ranks_each] = GENERATE(table<int, int>({{SIGINT, 1}, {SIGTERM, 2}}));
  const Hosts hosts{2};
  const End end = send_to(std::nullopt, signal, hosts, ranks_each);
  INFO("signal: " << signal << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < on_this_machine(limit));
  check_interrupted(end.outcome.err);
}

TEST_CASE("the only rank of a host that is terminated alone is named") {
  const Hosts hosts{2};
  const End end = send_to(0, SIGTERM, hosts, 1);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < on_this_machine(limit));
  if (!is_silenced(end) && !may_be_unnamed(end.outcome.exit_code))
    check_blames(end.outcome.err, 0, "is gone: SIGTERM ended it");
}

namespace {

void check_only_rank(int rank, int signal) {
  const Hosts hosts{2};
  const End end = send_to(rank, signal, hosts, 1);
  if (signal == SIGKILL && is_silenced(end)) {
    CHECK(end.outcome.exit_code != 0);
    CHECK(end.after < on_this_machine(limit));
    return;
  }
  check_fault(end, rank, signal, signal == SIGKILL ? "is gone" : "has stopped");
}

}  // namespace

TEST_CASE("the only rank of a host that is killed is found by the other hosts", "[long]") {
  check_only_rank(1, SIGKILL);
}
TEST_CASE("the only rank of a host that is stopped is found by the other hosts", "[long]") {
  check_only_rank(0, SIGSTOP);
}
TEST_CASE("so is the only rank of the other host, killed or stopped", "[extended]") {
  const auto [rank, signal] = GENERATE(table<int, int>({{0, SIGKILL}, {1, SIGSTOP}}));
  check_only_rank(rank, signal);
}

TEST_CASE("a host that cannot be reached any more is named by its lowest rank, and both sides end") {
  if (!notices_lost_host) return skip("this MPI's launcher waits for a host that is out of reach");
  const Hosts hosts{2};
  const End end = cut_off(1, hosts, 2);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.after < on_this_machine(limit));
  check_cut_off(end, 2, hosts.names()[1]);
  CHECK(hosts.sessions_left().empty());
}

TEST_CASE("a job ends also where mpirun does not notice that a host is out of reach") {
  if (!notices_lost_host) return skip("this MPI's launcher waits for a host that is out of reach");
  const Hosts hosts{2};
  const End end = cut_off(1, hosts, 2, {});
  INFO("stderr: " << end.outcome.err);
  CHECK(end.after < on_this_machine(limit));
  check_cut_off(end, 2, hosts.names()[1]);
}

namespace {

void check_one_of_three(int host) {
  if (!notices_lost_host) return skip("this MPI's launcher waits for a host that is out of reach");
  const Hosts hosts{3};
  const End end = cut_off(host, hosts, 2);
  INFO("host: " << host << "\nstderr: " << end.outcome.err);
  CHECK(end.after < on_this_machine(limit));
  check_cut_off(end, 2 * host, hosts.names()[static_cast<std::size_t>(host)]);
  CHECK(hosts.sessions_left().empty());
}

}  // namespace

TEST_CASE("of three hosts, the one that is out of reach is named", "[long]") {
  check_one_of_three(2);
}
TEST_CASE("of three hosts, the one in the middle is named if it is out of reach", "[extended]") {
  check_one_of_three(1);
}

namespace {

/// Of nine hosts, the fourth is not near the first and the seventh.
constexpr int many_hosts = 9;
constexpr int far_rank = 3;

}  // namespace

TEST_CASE("of nine hosts, a rank that is stopped is named, once, though not all hosts hear it", "[long]") {
  const Hosts hosts{many_hosts};
  check_fault(send_to(far_rank, SIGSTOP, hosts, 1), far_rank, SIGSTOP, "has stopped: no sign of life for 2 s");
}
TEST_CASE("of nine hosts, one that cannot be reached is named, and both sides end", "[long][extended]") {
  if (!notices_lost_host) return skip("this MPI's launcher waits for a host that is out of reach");
  const Hosts hosts{many_hosts};
  const End end = cut_off(far_rank, hosts, 1);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.after < on_this_machine(limit));
  check_cut_off(end, far_rank, hosts.names()[far_rank]);
}
TEST_CASE("of nine hosts, a rank that is killed is named, once", "[long][extended]") {
  const Hosts hosts{many_hosts};
  const End end = send_to(far_rank, SIGKILL, hosts, 1);
  if (!is_silenced(end)) check_fault(end, far_rank, SIGKILL, "is gone");
}
TEST_CASE("mpirun that is interrupted takes the ranks of nine hosts along, and one line says in which step",
          "[extended]") {
  const Hosts hosts{many_hosts};
  const End end = send_to(std::nullopt, SIGINT, hosts, 1);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < on_this_machine(limit));
  check_interrupted(end.outcome.err);
}

namespace {

void check_injected(const std::string& fault, int code, const std::string& told, int on_hosts = 2) {
  const Hosts hosts{on_hosts};
  const SharedMemory memory;
  const Outcome outcome = run_job_on(hosts, on_hosts == 2 ? 2 : 1,
                                     {"--data", small_data(), "--hidden", "16", "--steps", "9", "--stall-timeout", "2"},
                                     {.environment = {{"LOCKSTEP_FAULT", fault}, memory.variable()}, .timeout = 60s});
  INFO("LOCKSTEP_FAULT=" << fault << "\nstderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == code);
  check_blames(outcome.err, fault[fault.find(':') + 1] - '0', told);
  CHECK(processes_left(outcome.marker).empty());
  CHECK(memory.left() == std::set<std::string>{});
  CHECK(hosts.sessions_left().empty());
}

}  // namespace

TEST_CASE("of nine hosts, a rank that is late is named, once", "[long][extended]") {
  check_injected("hang:3:3", 5, "is late", many_hosts);
}
TEST_CASE("a rank that throws on another host is named", "[long]") {
  check_injected("throw:3:3", 4, "failed: LOCKSTEP_FAULT");
}
TEST_CASE("a rank that disagrees on another host is named", "[long]") {
  check_injected("skip-merge:2:3", 3, "has finished step");
}
TEST_CASE("a rank that throws on the host of mpirun is named on both", "[extended]") {
  check_injected("throw:0:3", 4, "failed: LOCKSTEP_FAULT");
}
