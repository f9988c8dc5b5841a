// A job that trains until something happens to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "faults/fault_checks.hpp"
#include "support/this_mpi.hpp"
#include "support/training_job.hpp"

namespace lockstep::test {

/// Runs the job with these arguments and returns when it is over.
using Launch = std::function<Outcome(const Arguments&, const CommandOptions&)>;

inline Launch on_this_host(int ranks) {
  return
      [ranks](const Arguments& arguments, const CommandOptions& options) { return run_job(ranks, arguments, options); };
}

/// A job under way.
class RunningJob {
 public:
  using Clock = std::chrono::steady_clock;

  /// Metrics go to a file of its own, unless `model` has a --run-dir, which is then its first option.
  RunningJob(const Launch& launch, const Arguments& arguments, const SharedMemory& memory,
             const Arguments& model = {"--data", small_data(), "--hidden", "16"},
             const std::string& stall_timeout = "2")
      : metrics_{has_run_folder(model) ? std::filesystem::path{model[1]} / "metrics.jsonl"
                                       : folder_.path() / "metrics.jsonl"},
        marker_{fmt::format("{}-{}", ::getpid(), Clock::now().time_since_epoch().count())} {
    const Arguments named = has_run_folder(model) ? Arguments{} : Arguments{"--metrics", metrics_};
    outcome_ = std::async(std::launch::async,
                          [=, all = arguments + model + named + Arguments{"--stall-timeout", stall_timeout},
                           environment = Environment{{variable, marker_}, memory.variable()}] {
                            return launch(all, {.environment = environment});
                          });
  }

  /// The process of a rank, or of `launcher` where there is no rank; nothing where it is not there. mpirun's daemons,
  /// and what starts them, are no ranks either, nor is what lockstep-run has mpirun start to ask a host.
  std::optional<pid_t> find(std::optional<int> rank, std::string_view launcher = mpirun_process) const {
    const std::string mark = fmt::format("{}={}", variable, marker_);
    for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
      const std::string name = entry.path().filename();
      if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
      std::optional<int> found_rank;
      bool mine = false;
      std::ifstream environment{entry.path() / "environ", std::ios::binary};
      for (std::string text; std::getline(environment, text, '\0');) {
        if (text == mark) mine = true;
        if (const auto rank_here = rank_in(text)) found_rank = rank_here;
      }
      if (mine && found_rank == rank && is_called(rank ? "lockstep-train" : launcher, entry.path()))
        return std::stoi(name);
    }
    return std::nullopt;
  }

  void wait_until_it_trains() {
    const auto deadline = Clock::now() + std::chrono::seconds{60};
    std::error_code ignored;
    while (Clock::now() < deadline) {
      if (std::filesystem::exists(metrics_) && std::filesystem::file_size(metrics_, ignored) > 1000) return;
      if (is_over()) FAIL("the job ended before it trained: " << outcome_.get().err);
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    }
    FAIL("the job did not start to train in 60 s");
  }

  /// Whatever `fault` does, at any moment of a step: they take a millisecond or two.
  void suffer(const std::function<void()>& fault) {
    std::this_thread::sleep_for(std::chrono::microseconds{std::random_device{}() % 20'000});
    at_ = Clock::now();
    fault();
  }

  void send(int signal, std::optional<int> rank, std::string_view launcher = mpirun_process) {
    suffer([&] {
      const std::optional<pid_t> process = find(rank, launcher);
      REQUIRE(process);
      REQUIRE(::kill(*process, signal) == 0);
    });
  }

  /// The test fails if the job ends before.
  template <class Condition>
  void wait_until(const Condition& is_met,
                  std::chrono::milliseconds between_looks = std::chrono::milliseconds{10}) const {
    while (!is_met()) {
      REQUIRE_FALSE(is_over());
      std::this_thread::sleep_for(between_looks);
    }
  }

  bool is_over() const { return outcome_.wait_for(std::chrono::seconds{0}) == std::future_status::ready; }

  /// Waits for the end. `after` is how long it took since the fault.
  Outcome end(std::chrono::duration<double>& after) {
    Outcome outcome = outcome_.get();
    after = Clock::now() - at_;
    return outcome;
  }

 private:
  static constexpr const char* variable = "LOCKSTEP_TEST_RUNNING_JOB";

  static bool is_called(std::string_view program, const std::filesystem::path& process) {
    std::ifstream file{process / "comm"};
    std::string name;
    return std::getline(file, name) && name.starts_with(program);
  }

  static bool has_run_folder(const Arguments& model) { return !model.empty() && model.front() == "--run-dir"; }

  TemporaryDirectory folder_;
  std::filesystem::path metrics_;
  std::string marker_;
  std::future<Outcome> outcome_;
  Clock::time_point at_;
};

inline std::string program(const char* variable) {
  const char* const path = std::getenv(variable);
  if (!path) throw std::runtime_error{std::string{variable} + " is not set: run this with `meson test`"};
  return path;
}

/// The command that supervises `lockstep-train arguments…` on two ranks.
inline Arguments supervised(const Arguments& arguments) {
  return Arguments{program("LOCKSTEP_RUN"), "-n", "2", "--", program("LOCKSTEP_TRAIN")} + arguments;
}

inline Outcome supervise(const Arguments& arguments, CommandOptions options) {
  options.environment.insert(mpi_environment().begin(), mpi_environment().end());
  return run_command(supervised(arguments), options);
}

inline Arguments without_end() {
  return {"--steps", "1000000000", "--eval-every", "1000000000"};
}

/// Starts the job by this command, with stderr in a file, to be read while the job runs.
inline Launch with_stderr_in(const std::string& file, const Arguments& command) {
  return [=](const Arguments& arguments, const CommandOptions& options) {
    CommandOptions with_mpi = options;
    with_mpi.environment.insert(mpi_environment().begin(), mpi_environment().end());
    Outcome outcome = run_command(Arguments{"sh", "-c", "exec \"$@\" 2> \"$0\"", file} + command + arguments, with_mpi);
    outcome.err = read_file(file);
    return outcome;
  };
}

struct End {
  Outcome outcome;
  std::chrono::duration<double> after;
};

/// Starts a job, does `fault` to it once it trains, and waits for the end. Nothing may be left.
inline End end_of(const Launch& launch, const std::function<void(RunningJob&)>& fault) {
  const SharedMemory memory;
  RunningJob job{launch, without_end(), memory};
  job.wait_until_it_trains();
  fault(job);
  End end;
  end.outcome = job.end(end.after);
  INFO("stderr: " << end.outcome.err);
  CHECK_FALSE(end.outcome.timed_out);
  CHECK((end.outcome.out.empty() || may_be_unnamed(end.outcome.exit_code)));
  CHECK(processes_left(end.outcome.marker) == std::vector<std::string>{});
  CHECK(memory.left() == std::set<std::string>{});
  return end;
}

}  // namespace lockstep::test
