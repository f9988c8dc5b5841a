// Trainings that are told by a signal to stop: they end after the step under way, and go on from there.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "faults/running_job.hpp"

using namespace lockstep::test;

namespace {

const std::string goes_on = "to go on, give the same command with --resume auto";

/// The number in "lockstep: stopped after step N, …", which is the only line of the job.
std::string step_stopped_after(const Outcome& outcome, const std::string& told) {
  INFO("stderr: " << outcome.err);
  const std::string begin = "lockstep: stopped after step ", end = ", as a signal asked; " + told;
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  REQUIRE_THAT(lines.front(), Catch::StartsWith(begin) && Catch::EndsWith(end));
  return lines.front().substr(begin.size(), lines.front().size() - begin.size() - end.size());
}

/// A job with checkpoints that gets a signal while it trains.
class Signalled {
 public:
  explicit Signalled(int signal) {
    const SharedMemory memory;
    RunningJob job{on_this_host(2), without_end(), memory, model + checkpoints()};
    job.wait_until_it_trains();
    job.send(signal, std::nullopt);
    std::chrono::duration<double> after{0};
    outcome = job.end(after);
    CHECK(outcome.out.empty());
    CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
    CHECK(memory.left() == std::set<std::string>{});
  }

  Arguments checkpoints() const { return {"--checkpoint-dir", folder_.path() / "checkpoints", "--resume", "auto"}; }
  std::string newest() const { return std::filesystem::read_symlink(folder_.path() / "checkpoints" / "latest"); }

  const Arguments model{"--data", small_data(), "--hidden", "16"};
  Outcome outcome;

 private:
  TemporaryDirectory folder_;
};

}  // namespace

TEST_CASE("SIGUSR1 to mpirun saves the step under way, from which the training goes on as if nothing had been") {
  const Signalled job{SIGUSR1};
  CHECK(job.outcome.exit_code == 75);
  const std::string step = step_stopped_after(job.outcome, goes_on);
  CHECK(job.newest() == "step-" + step);
  const Arguments a_bit_longer =
      job.model + Arguments{"--steps", std::to_string(std::stoll(step) + 20), "--eval-every", "1000000"};
  CHECK(train(4, a_bit_longer + job.checkpoints()).digest() == train(1, a_bit_longer).digest());
}

TEST_CASE("SIGTERM to mpirun saves the step under way if there is time, and one line says what came of it") {
  const Signalled job{SIGTERM};
  const bool silent = interrupted_job_may_be_silent && lines_starting_with(job.outcome.err, "lockstep:").empty();
  const bool stopped = !silent && job.outcome.err.find("lockstep: interrupted") == std::string::npos;
  CHECK(job.outcome.exit_code == code_of_terminated_job(stopped));
  if (stopped)
    CHECK(job.newest() == "step-" + step_stopped_after(job.outcome, goes_on));
  else
    check_interrupted(job.outcome.err);
}

TEST_CASE("SIGUSR1 to one rank stops all ranks, and without a checkpoint folder nothing is saved") {
  const auto [outcome, after] = end_of(on_this_host(2), [](RunningJob& job) { job.send(SIGUSR1, 1); });
  CHECK(outcome.exit_code == 75);
  (void)step_stopped_after(outcome, "nothing was saved, as there is no --checkpoint-dir");
}
