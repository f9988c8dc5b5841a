// LOCKSTEP_FAULT, one rank at one step: who is named, how the job ends, and when.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "faults/fault_checks.hpp"
#include "support/this_mpi.hpp"
#include "support/training_job.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

constexpr int steps = 5;

Outcome run_with_fault(int ranks, const std::string& fault, const SharedMemory& memory = {}) {
  // A job that hangs is a failure to be told of, not to be waited for.
  return run_job(ranks,
                 {"--data", small_data(), "--hidden", "16", "--steps", std::to_string(steps), "--global-batch", "64",
                  "--stall-timeout", "2"},
                 {.environment = {{"LOCKSTEP_FAULT", fault}, memory.variable()}, .timeout = 60s});
}

struct Place {
  int ranks, rank, step;
};

// Both sizes, rank 0 and others, the first and the last step and one between.
const std::vector<Place> places{{2, 0, 0}, {2, 1, steps - 1}, {4, 0, 2}, {4, 2, 0}};

/// Injects `kind` at each place in jobs of `ranks`, and checks that the job ends with `code`, within `limit` of its
/// start-up, blaming the right replica in a line that contains `told`.
void check_fault(int ranks, const std::string& kind, int code, std::chrono::duration<double> limit,
                 const std::string& told) {
  for (const Place& place : places) {
    if (place.ranks != ranks) continue;
    const std::string fault = fmt::format("{}:{}:{}", kind, place.rank, place.step);
    INFO("LOCKSTEP_FAULT=" << fault << " on " << place.ranks << " ranks");
    const SharedMemory memory;
    const Outcome outcome = run_with_fault(place.ranks, fault, memory);
    INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
    CHECK_FALSE(outcome.timed_out);
    CHECK(outcome.exit_code == code);
    CHECK(outcome.seconds < on_this_machine(limit + start_up));
    CHECK(outcome.out.empty());
    check_blames(outcome.err, place.rank, told);
    // The step as progress and metrics count it, too.
    for (const std::string& line : lines_starting_with(outcome.err, "lockstep:"))
      CHECK_THAT(line, Catch::Contains(fmt::format(" in step {}", place.step + 1)));
    CHECK(lines_starting_with(outcome.err, "[rank 0] warning: LOCKSTEP_FAULT: ").size() == 1);
    CHECK(processes_left(outcome.marker).empty());
    CHECK(memory.left() == std::set<std::string>{});
  }
}

}  // namespace

TEMPLATE_TEST_CASE_SIG("a rank that throws ends the job with 4", "", ((int ranks), ranks), 2, 4) {
  check_fault(ranks, "throw", 4, 5s, "failed: LOCKSTEP_FAULT: thrown in step");
}

TEMPLATE_TEST_CASE_SIG("a rank that exits ends the job with mpirun's own code", "", ((int ranks), ranks), 2, 4) {
  // Open MPI gives 1 to a process that left without finalizing, before its peers can say more.
  check_fault(ranks, "exit", code_of_unfinished, 5s, "is gone: its process ended");
}

TEMPLATE_TEST_CASE_SIG("a rank that is killed ends the job with mpirun's own code", "", ((int ranks), ranks), 2, 4) {
  check_fault(ranks, "kill", code_of_killed(), 5s, "is gone: its process ended");
}

TEMPLATE_TEST_CASE_SIG("a rank that stops ends the job with 5", "", ((int ranks), ranks), 2, 4) {
  check_fault(ranks, "stop", 5, 2s + 5s, "has stopped: no sign of life for 2 s");
}

TEMPLATE_TEST_CASE_SIG("a rank that skips a merge_call ends the job with 3", "", ((int ranks), ranks), 2, 4) {
  check_fault(ranks, "skip-merge", 3, 5s, "");
}

TEST_CASE("a fault in a job of one rank is that job's own error") {
  const Outcome outcome = run_with_fault(1, "throw:0:0");
  CHECK(outcome.exit_code == 1);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: error: LOCKSTEP_FAULT: thrown in step 1; this was in step 1, "
                                              "computing (training.cpp:"));
}

TEST_CASE("a fault after the last step never happens") {
  const Outcome outcome = run_with_fault(2, fmt::format("kill:1:{}", steps));
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}
