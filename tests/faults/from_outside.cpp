// Signals that reach a job from outside while it trains.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "faults/fault_checks.hpp"
#include "support/training_job.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

/// A run that trains until something happens to it.
class EndlessJob {
 public:
  EndlessJob(int ranks, const SharedMemory& memory)
      : marker_{fmt::format("{}-{}", getpid(), Clock::now().time_since_epoch().count())} {
    const Arguments arguments{"--data",       small_data(), "--hidden",  "16",      "--steps",         "1000000000",
                              "--eval-every", "1000000000", "--metrics", metrics(), "--stall-timeout", "2"};
    outcome_ = std::async(std::launch::async, [=, environment = Environment{{variable, marker_}, memory.variable()}] {
      return run_job(ranks, arguments, {.environment = environment, .timeout = 40s});
    });
    wait_until_it_trains();
  }

  /// The process of a rank, or of mpirun where there is no rank.
  pid_t process(std::optional<int> rank) const {
    for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
      const std::string name = entry.path().filename();
      if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
      std::optional<int> found_rank;
      bool mine = false;
      std::ifstream environment{entry.path() / "environ", std::ios::binary};
      for (std::string text; std::getline(environment, text, '\0');) {
        if (text == std::string{variable} + "=" + marker_) mine = true;
        if (text.starts_with("OMPI_COMM_WORLD_RANK=")) found_rank = std::stoi(text.substr(text.find('=') + 1));
      }
      if (mine && found_rank == rank) return std::stoi(name);
    }
    FAIL("the job has no such process");
    return 0;
  }

  void send(int signal, std::optional<int> rank) {
    // Any moment of a step: they take a millisecond or two.
    std::this_thread::sleep_for(std::chrono::microseconds{std::random_device{}() % 20'000});
    sent_ = Clock::now();
    REQUIRE(kill(process(rank), signal) == 0);
  }

  /// Waits for the end. `after` is how long it took since the signal.
  Outcome end(std::chrono::duration<double>& after) {
    Outcome outcome = outcome_.get();
    after = Clock::now() - sent_;
    return outcome;
  }

 private:
  static constexpr const char* variable = "LOCKSTEP_TEST_ENDLESS_JOB";

  std::string metrics() const { return folder_.path() / "metrics.jsonl"; }

  void wait_until_it_trains() {
    const auto deadline = Clock::now() + 20s;
    std::error_code ignored;
    while (Clock::now() < deadline) {
      if (std::filesystem::exists(metrics()) && std::filesystem::file_size(metrics(), ignored) > 1000) return;
      std::this_thread::sleep_for(10ms);
    }
    FAIL("the job did not start to train in 20 s");
  }

  TemporaryDirectory folder_;
  std::string marker_;
  std::future<Outcome> outcome_;
  Clock::time_point sent_;
};

struct End {
  Outcome outcome;
  std::chrono::duration<double> after;
};

/// Sends a signal to one process of a job on `ranks` ranks; nothing may be left of it.
End send_to(std::optional<int> rank, int signal, int ranks) {
  const SharedMemory memory;
  EndlessJob job{ranks, memory};
  job.send(signal, rank);
  End end;
  end.outcome = job.end(end.after);
  INFO("stderr: " << end.outcome.err);
  CHECK_FALSE(end.outcome.timed_out);
  CHECK(end.outcome.out.empty());
  CHECK(processes_left(end.outcome.marker).empty());
  CHECK(memory.left() == std::set<std::string>{});
  return end;
}

}  // namespace

TEST_CASE("a rank that is killed at any moment is named, and the job ends within 5 s", "[B-46][K-22]") {
  const int rank = GENERATE(0, 1, 2);
  const End end = send_to(rank, SIGKILL, 3);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == 137);
  CHECK(end.after < 5s);
  check_blames(end.outcome.err, rank, "is gone: its process ended");
}

TEST_CASE("a rank that is stopped at any moment is named, and the job ends within 5 s of the stall timeout", "[B-45]") {
  const int rank = GENERATE(0, 1);
  const End end = send_to(rank, SIGSTOP, 2);
  INFO("rank: " << rank << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code == 5);
  CHECK(end.after > 1.5s);
  CHECK(end.after < 2s + 5s);
  check_blames(end.outcome.err, rank, "has stopped: no sign of life for 2 s");
}

TEST_CASE("a rank that is terminated alone is named") {
  const End end = send_to(1, SIGTERM, 3);
  INFO("stderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < 5s);
  check_blames(end.outcome.err, 1, "is gone: SIGTERM ended it");
}

TEST_CASE("mpirun that is interrupted or terminated takes the whole job along, and no rank is blamed") {
  const int signal = GENERATE(SIGINT, SIGTERM);
  const End end = send_to(std::nullopt, signal, 3);
  INFO("signal: " << signal << "\nstderr: " << end.outcome.err);
  CHECK(end.outcome.exit_code != 0);
  CHECK(end.after < 5s);
  CHECK(lines_starting_with(end.outcome.err, "lockstep:").empty());
}
