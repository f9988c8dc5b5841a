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
  Environment environment{{"LOCKSTEP_FAULT", fault}, memory.variable()};
  // Ranks that lost another one need the second that mpirun gives them to say so.
  if (!fault.starts_with("kill") && !fault.starts_with("exit")) environment.insert(kills_at_once);
  // A job that hangs is a failure to be told of, not to be waited for.
  return run_job(ranks,
                 {"--data", small_data(), "--hidden", "16", "--steps", std::to_string(steps), "--global-batch", "64",
                  "--stall-timeout", "2"},
                 {.environment = environment, .timeout = 60s});
}

struct Place {
  int ranks, rank, step;
};

// Both sizes, rank 0 and others, the first and the last step.
const Place of_two{2, 0, 0}, of_four{4, 2, steps - 1};
const Place others[]{{2, 1, steps - 1}, {4, 0, 2}};

/// A kind of fault, and what a job of it ends with: a code, in a time after its start-up, and a line.
struct Fault {
  std::string kind;
  int code;
  std::chrono::duration<double> limit;
  std::string told;
};

const Fault thrown{"throw", 4, 5s, "failed: LOCKSTEP_FAULT: thrown in step"};
// Open MPI gives 1 to a process that left without finalizing, before its peers can say more.
const Fault exited{"exit", code_of_unfinished, 5s, "is gone: its process ended"};
const Fault killed{"kill", code_of_killed(), 5s, "is gone: its process ended"};
const Fault stopped{"stop", 5, 2s + 5s, "has stopped: no sign of life for 2 s"};
const Fault skipped{"skip-merge", 3, 5s, ""};

/// Injects it there, and checks how the job ends, and that it blames the right replica.
void check_fault(const Fault& fault, const Place& place) {
  const std::string text = fmt::format("{}:{}:{}", fault.kind, place.rank, place.step);
  INFO("LOCKSTEP_FAULT=" << text << " on " << place.ranks << " ranks");
  const SharedMemory memory;
  const Outcome outcome = run_with_fault(place.ranks, text, memory);
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == fault.code);
  CHECK(outcome.seconds < on_this_machine(fault.limit + start_up));
  CHECK(outcome.out.empty());
  check_blames(outcome.err, place.rank, fault.told);
  // The step as progress and metrics count it, too.
  for (const std::string& line : lines_starting_with(outcome.err, "lockstep:"))
    CHECK_THAT(line, Catch::Contains(fmt::format(" in step {}", place.step + 1)));
  CHECK(lines_starting_with(outcome.err, "[rank 0] warning: LOCKSTEP_FAULT: ").size() == 1);
  CHECK(processes_left(outcome.marker).empty());
  CHECK(memory.left() == std::set<std::string>{});
}

}  // namespace

TEST_CASE("a rank that throws ends the job with 4") {
  check_fault(thrown, of_two);
  check_fault(thrown, of_four);
}

TEST_CASE("a rank that exits ends the job with mpirun's own code") {
  check_fault(exited, of_two);
  check_fault(exited, of_four);
}

TEST_CASE("a rank that is killed ends the job with mpirun's own code") {
  check_fault(killed, of_two);
  check_fault(killed, of_four);
}

TEST_CASE("a rank that stops ends the job with 5") {
  check_fault(stopped, of_two);
  check_fault(stopped, of_four);
}

TEST_CASE("a rank that skips a merge_call ends the job with 3") {
  check_fault(skipped, of_two);
  check_fault(skipped, of_four);
}

TEST_CASE("so do the same faults of other ranks, in other steps", "[extended]") {
  for (const Fault& fault : {thrown, exited, killed, stopped, skipped})
    for (const Place& place : others) check_fault(fault, place);
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
