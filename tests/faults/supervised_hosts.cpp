// What lockstep-run makes of hosts that are lost, silent or not there.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "faults/running_job.hpp"
#include "support/hosts.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

/// A job without end under lockstep-run.
class Supervised {
 public:
  Supervised(const Hosts& hosts, int ranks_each)
      : job_{[&hosts, ranks_each](const Arguments& arguments, const CommandOptions& options) {
               return supervise_on(hosts, ranks_each, arguments, options);
             },
             without_end(), memory_,
             Arguments{"--data", small_data(), "--hidden", "16", "--checkpoint-dir", folder_.path() / "checkpoints",
                       "--checkpoint-every", "10"}} {
    job_.wait_until_it_trains();
  }

  /// Waits until another rank 0 trains.
  void suffer_and_restart(const std::function<void()>& fault) {
    const auto first = job_.find(0);
    job_.suffer(fault);
    const auto is_another = [&] {
      const auto rank = job_.find(0);
      return rank && rank != first;
    };
    job_.wait_until(is_another);
  }

  void kill_daemon() const {
    const auto rank = job_.find(1);
    REQUIRE(rank);
    std::string status;  // "12 (a name) S 10 …", with the number of the parent
    std::getline(std::ifstream{fmt::format("/proc/{}/stat", *rank)}, status);
    REQUIRE(::kill(std::stoi(status.substr(status.rfind(')') + 4)), SIGKILL) == 0);
  }

  /// Stops it. What lockstep-run decided on the way; nothing may be left.
  std::vector<std::string> end() {
    job_.send(SIGTERM, std::nullopt, "lockstep-run");
    std::chrono::duration<double> after{0};
    outcome_ = job_.end(after);
    INFO("stderr: " << outcome_.err);
    CHECK(outcome_.exit_code == 75);
    CHECK(processes_left(outcome_.marker) == std::vector<std::string>{});
    CHECK(memory_.left() == std::set<std::string>{});
    return lines_starting_with(outcome_.err, "lockstep-run: ");
  }

  /// All that it said, after the end.
  const std::string& said() const { return outcome_.err; }

  /// The first line about a rank.
  std::string told() const {
    const auto lines = lines_starting_with(outcome_.err, "lockstep: replica ");
    return lines.empty() ? "" : lines.front();
  }

 private:
  TemporaryDirectory folder_;
  SharedMemory memory_;
  RunningJob job_;
  Outcome outcome_;
};

}  // namespace

TEST_CASE("lockstep-run leaves out a host that is out of reach, and goes on with the ranks that are left") {
  const Hosts hosts{2};
  Supervised job{hosts, 2};
  job.suffer_and_restart([&] { hosts.cut(1); });
  const auto lines = job.end();
  REQUIRE(lines.size() > 2);
  const std::string left_out = fmt::format("lockstep-run: leaves out host {}: it ", hosts.names()[1]);
  CHECK_THAT(lines[0], Catch::Equals(left_out + "cannot be reached") ||
                           (Catch::StartsWith(names_lost_host ? left_out : "-") && Catch::EndsWith("does not answer")));
  CHECK_THAT(lines[1], Catch::StartsWith("lockstep-run: restart 1 of 100, on 2 ranks: "));
}

TEST_CASE("a daemon of mpirun that is killed takes its ranks along, and a host that answers goes on with all others") {
  const Hosts hosts{2};
  Supervised job{hosts, 1};
  job.suffer_and_restart([&] { job.kill_daemon(); });
  const auto lines = job.end();
  REQUIRE(lines.size() > 1);
  CHECK_THAT(lines[0], Catch::StartsWith("lockstep-run: restart 1 of 100, on 2 ranks: "));
  if (of_hydra) return;  // its launcher kills the others at once
  CHECK_THAT(lines[0], Catch::EndsWith(" (exit code 205)"));
  INFO("stderr: " << job.said());
  if (job.told().empty() && names_lost_host) return;
  CHECK_THAT(job.told(), Catch::StartsWith("lockstep: replica 1 (worker:1, host " + hosts.names()[1] + ") is gone: "));
}

TEST_CASE("a host that says nothing when a job begins is left out, if fewer ranks will do", "[long][extended]") {
  const Hosts hosts{2};
  const TemporaryDirectory folder;
  const SharedMemory memory;
  const Outcome outcome =
      supervise_on(hosts, 1, short_run() + Arguments{"--checkpoint-dir", folder.path(), "--quiet"},
                   {.environment = {{"LOCKSTEP_TEST_MUTE_HOST", hosts.names()[1]}, memory.variable()}},
                   {"--start-timeout", "2", "--min-ranks", "1"});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  // A busy machine may take as long for the second start, which is told too.
  const auto lines = lines_starting_with(outcome.err, own_lines);
  REQUIRE(lines.size() > 1);
  CHECK(lines[0] == fmt::format("lockstep-run: leaves out host {}: it does not answer", hosts.names()[1]));
  CHECK(lines[1] == "lockstep-run: restart 1 of 100, on 1 rank: it had not begun after 2 s (exit code 5)");
  CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
  CHECK(memory.left() == std::set<std::string>{});
  CHECK(hosts.sessions_left().empty());
}

TEST_CASE("a job is started from its cluster spec alone, and goes on without the host of its chief", "[long]") {
  const Hosts hosts{3};
  const TemporaryDirectory folder;
  const SharedMemory memory;
  // The chief is not on the host that starts the job, nor are the tasks of its host side by side.
  const std::filesystem::path spec = folder.write(
      "spec.json", fmt::format(R"({{"cluster": {{"chief": ["{1}:1"], "worker": ["{0}:1", "{1}:2", "{2}:1"]}}}})",
                               hosts.names()[0], hosts.names()[1], hosts.names()[2]));
  const auto run = [&](const std::string& name, const Environment& more, const Arguments& supervision) {
    Environment environment = more;
    environment.insert(memory.variable());
    Outcome outcome = supervise_by_spec(hosts, spec, short_run() + Arguments{"--checkpoint-dir", folder.path() / name},
                                        {.environment = environment}, supervision);
    INFO("stderr: " << outcome.err);
    CHECK(outcome.exit_code == 0);
    CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
    return Json::parse(last_line(outcome.out));  // mpirun complains there too
  };
  const Json all = run("all", {}, {"--probe"});
  CHECK(all["ranks"] == 4);
  const Json some = run("some", {{"LOCKSTEP_TEST_MISSING_HOST", hosts.names()[1]}}, {"--min-ranks", "1"});
  CHECK(some["ranks"] == 2);
  CHECK(some["weights_digest"] == all["weights_digest"]);
  CHECK(memory.left() == std::set<std::string>{});
}

TEST_CASE("a host that is not there at the first start is wrong input, and leaves nothing of the others") {
  const Hosts hosts{3};
  const TemporaryDirectory folder;
  const Outcome outcome = supervise_on(hosts, 1, short_run() + Arguments{"--checkpoint-dir", folder.path()},
                                       {.environment = {{"LOCKSTEP_TEST_MISSING_HOST", hosts.names()[1]}}});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(lines_starting_with(outcome.err, "lockstep") ==
        std::vector<std::string>{fmt::format("lockstep-run: error: host {} cannot be reached; expected every host to "
                                             "answer at the first start (--min-ranks goes on without)",
                                             hosts.names()[1])});
  CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
  CHECK(hosts.sessions_left().empty());
}
