// Jobs that lockstep-run starts again, and ends.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <catch2/catch.hpp>
#include <fcntl.h>

#include "core/base/descriptor.hpp"
#include "faults/running_job.hpp"

using namespace lockstep::test;

namespace {

Arguments with_checkpoints(const TemporaryDirectory& folder) {
  return {"--run-dir", folder.path() / "run", "--checkpoint-every", "10"};
}

/// Of the lines of the run's timeline.
std::vector<std::string> kinds_of(const TemporaryDirectory& folder, const std::string& kind) {
  return lines_starting_with(read_file(folder.path() / "run/timeline.jsonl"), R"({"kind":")" + kind + '"');
}

std::vector<std::string> decisions(const Outcome& outcome) {
  return lines_starting_with(outcome.err, "lockstep-run:");
}

/// A job without end.
class Supervised {
 public:
  Supervised() { job_.wait_until_it_trains(); }

  RunningJob& job() { return job_; }

  /// How it ends. Nothing may be left.
  Outcome end() {
    std::chrono::duration<double> after{0};
    Outcome outcome = job_.end(after);
    INFO("stderr: " << outcome.err);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.out.empty());
    // mpirun takes two seconds to end a job.
    CHECK(processes_left(outcome.marker, std::chrono::seconds{20}) == std::vector<std::string>{});
    return outcome;
  }
  std::set<std::string> memory_left() const { return memory_.left(); }
  const TemporaryDirectory& folder() const { return folder_; }

 private:
  SharedMemory memory_;
  TemporaryDirectory folder_;
  RunningJob job_{supervise, without_end(), memory_,
                  Arguments{"--data", small_data(), "--hidden", "16"} + with_checkpoints(folder_)};
};

}  // namespace

TEST_CASE("a job whose rank is killed goes on without a person, and ends in the bytes of one that was not disturbed") {
  const TemporaryDirectory folder;
  const Arguments run{"--data", small_data(), "--hidden", "16", "--steps", "40"};
  const SharedMemory memory;
  const Outcome outcome =
      supervise(run + with_checkpoints(folder), {.environment = {{"LOCKSTEP_FAULT", "kill:1:25"}, memory.variable()}});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(Json::parse(last_line(outcome.out)).at("weights_digest") == train(1, run).digest());
  REQUIRE(decisions(outcome).size() == 1);
  CHECK_THAT(decisions(outcome).front(), Catch::StartsWith("lockstep-run: restart 1 of 100, on 2 ranks: "));
  const auto told = lines_starting_with(outcome.err, "lockstep: replica 1 (worker:1, host ");
  REQUIRE(told.size() == 1);
  CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
  // The folder of the run has each step once, and both starts.
  std::vector<int> steps;
  for (const Json& line : read_metrics(folder.path() / "run/metrics.jsonl"))
    if (line.at("kind") == "train") steps.push_back(line.at("step"));
  std::vector<int> all(40);
  std::iota(all.begin(), all.end(), 1);
  CHECK(steps == all);
  CHECK(kinds_of(folder, "start").size() == 2);
  REQUIRE(kinds_of(folder, "failure").size() == 1);
  CHECK(Json::parse(kinds_of(folder, "failure").front()).at("line") == told.front());
  CHECK(kinds_of(folder, "end").size() == 1);
  CHECK(memory.left() == std::set<std::string>{});
}

TEST_CASE("a job that went back to an earlier checkpoint with another rate goes on with what it made itself") {
  const TemporaryDirectory folder;
  const std::filesystem::path all = folder.path() / "run/checkpoints", step = all / "step-10",
                              copy = folder.path() / "step-10";
  const Arguments run{"--data", small_data(), "--hidden", "16", "--steps", "30"};
  REQUIRE(run_job(1, run + with_checkpoints(folder)).exit_code == 0);
  std::filesystem::copy(step, copy, std::filesystem::copy_options::recursive);
  const Arguments changed = run + Arguments{"--learning-rate", "0.003", "--override", "learning-rate"};
  const Outcome outcome = supervise(changed + with_checkpoints(folder) + Arguments{"--resume", step},
                                    {.environment = {{"LOCKSTEP_FAULT", "kill:1:25"}}});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(decisions(outcome).size() == 1);
  CHECK(Json::parse(last_line(outcome.out)).at("weights_digest") ==
        train(1, changed + Arguments{"--resume", copy}).digest());
  CHECK(std::filesystem::exists(all / "step-30.aside"));
  int made = 0;
  for (const Json& line : read_metrics(folder.path() / "run/metrics.jsonl"))
    if (line.at("kind") == "train") CHECK(line.at("step") == ++made);
  CHECK(made == 30);
}

TEST_CASE("a job whose mpirun is killed goes on, and stops after a step when lockstep-run is told to end") {
  Supervised supervised;
  RunningJob& job = supervised.job();
  const auto first = job.find(std::nullopt);
  // They can remove nothing.
  for (const int rank : {0, 1}) job.send(SIGSTOP, rank);
  job.send(SIGKILL, std::nullopt);
  const auto is_another = [&] {
    const auto rank = job.find(1);
    const auto launcher = job.find(std::nullopt);
    return rank && launcher && launcher != first;
  };
  job.wait_until(is_another);
  job.send(SIGTERM, std::nullopt, "lockstep-run");
  const Outcome outcome = supervised.end();
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 75);
  REQUIRE(decisions(outcome).size() == 3);
  CHECK(decisions(outcome)[0] == "lockstep-run: restart 1 of 100, on 2 ranks: SIGKILL ended mpirun (exit code 137)");
  CHECK_THAT(decisions(outcome)[1], Catch::StartsWith("lockstep-run: SIGTERM: the job is to stop"));
  // No rank could say how the first job ended.
  INFO(read_file(supervised.folder().path() / "run/timeline.jsonl"));
  REQUIRE(kinds_of(supervised.folder(), "failure").size() == 1);
  CHECK_THAT(kinds_of(supervised.folder(), "failure").front(), Catch::Contains(R"("line":"lockstep-run: )"));
  CHECK(supervised.memory_left() == std::set<std::string>{});
}

TEST_CASE("a second signal ends the job at once, without another one") {
  Supervised supervised;
  supervised.job().send(SIGSTOP, 1);  // it can no longer stop after a step
  supervised.job().send(SIGINT, std::nullopt, "lockstep-run");
  supervised.job().send(SIGTERM, std::nullopt, "lockstep-run");
  const Outcome outcome = supervised.end();
  CHECK(outcome.exit_code == 128 + SIGTERM);
  CHECK(supervised.memory_left() == std::set<std::string>{});
}

TEST_CASE("of a lockstep-run that is killed nothing is left") {
  Supervised supervised;
  supervised.job().send(SIGKILL, std::nullopt, "lockstep-run");
  CHECK(supervised.end().exit_code == 137);
  CHECK(supervised.memory_left() == std::set<std::string>{});
}

TEST_CASE("a training whose folder another process uses is refused, and under lockstep-run waits for it to end") {
  const TemporaryDirectory folder;
  const Arguments run = short_run() + Arguments{"--checkpoint-dir", folder.path()};
  const std::string lock = folder.write(".lock", ""), err = folder.path() / "stderr";
  lockstep::Descriptor other{::open(lock.c_str(), O_RDWR | O_CLOEXEC)};
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  REQUIRE(::fcntl(other.get(), F_OFD_SETLK, &whole) == 0);
  check_refused(run_refused(2, run), {"--checkpoint-dir " + folder.path().string() + " is in use by "});

  std::future<Outcome> waiting = std::async(std::launch::async, [&] {
    const Arguments to_file{"sh", "-c", "exec \"$@\" 2> " + err, "sh"};
    return run_command(to_file + supervised(run), {.environment = mpi_environment()});
  });
  while (!std::filesystem::exists(err) || read_file(err).find(": waits for ") == std::string::npos) {
    REQUIRE(waiting.wait_for(std::chrono::milliseconds{10}) == std::future_status::timeout);
  }
  other = lockstep::Descriptor{};
  CHECK(waiting.get().exit_code == 0);
}

TEST_CASE("a program that fails in the same step twice is not started again") {
  const TemporaryDirectory folder;
  // A fault that is injected happens once, unless the launcher injects it.
  const Arguments launcher{
      program("LOCKSTEP_RUN"), "--mpirun", "env LOCKSTEP_FAULT=throw:1:25 mpirun", "-n", "2", "--"};
  const Outcome outcome = run_command(
      launcher + Arguments{program("LOCKSTEP_TRAIN"), "--data", small_data(), "--hidden", "16", "--steps", "40"} +
          with_checkpoints(folder),
      {.environment = mpi_environment()});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 4);
  CHECK(
      decisions(outcome) ==
      std::vector<std::string>{"lockstep-run: restart 1 of 100, on 2 ranks: a rank failed (exit code 4)",
                               "lockstep-run: ends with exit code 4, as a restart did not help: the job failed in the "
                               "same way, in the same step"});
  CHECK(outcome.err.find("has begun") == std::string::npos);
}

TEST_CASE("what a restart cannot mend is not started again") {
  const TemporaryDirectory folder;
  const Outcome outcome = supervise({"--data", "/proc/none", "--checkpoint-dir", folder.path()}, {});
  CHECK(outcome.exit_code == 2);
  CHECK(decisions(outcome) == std::vector<std::string>{"lockstep-run: ends with exit code 2, as a restart would not "
                                                       "help: the input is wrong"});
  const Outcome without = supervise(short_run(), {});
  CHECK(without.exit_code == 2);
  CHECK_THAT(without.err, Catch::StartsWith("lockstep-run: error: lockstep-train without --checkpoint-dir"));
}
