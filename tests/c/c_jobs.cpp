// Programs in C, started as jobs: on each number of ranks, and with a rank that is lost.
#include <chrono>
#include <cstdlib>
#include <string>
#include <tuple>

#include <catch2/catch.hpp>

#include "support/job.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

Outcome program(int ranks, const std::string& mode) {
  const Outcome outcome = run_command({"mpirun", "-n", std::to_string(ranks), std::getenv("LOCKSTEP_C_PROGRAM"), mode},
                                      {.environment = mpi_environment()});
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

void check_passes(int ranks) {
  const Outcome outcome = program(ranks, std::to_string(ranks));
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == "all checks passed\n");
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

constexpr const char* named =
    "it was in 'marching up the hill and down again, forty-eight', computing after agree #1 (program.c:";

/// The line of a job in which `sentence` is said of replica 1, and what on_lost is told of it, `told` times.
void check_lost(const std::string& mode, int code, const std::string& sentence, std::size_t told) {
  const Outcome outcome = program(3, mode);
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  if (lines.empty() && may_be_unnamed(outcome.exit_code)) return;
  // The launcher may first see a rank that on_lost has ended.
  const bool by_itself = mode == "told" && outcome.exit_code == 7;
  CHECK((outcome.exit_code == code || by_itself || may_be_unnamed(outcome.exit_code)));
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (worker:1, world rank 1, host ") &&
                                Catch::Contains(sentence) &&
                                Catch::Contains(mode == "stall" ? "; it was computing" : named));
  const std::string as_told = lines.front().substr(std::string{"lockstep: "}.size());
  const std::string code_told = mode == "stall" ? "told 5 " : "told 4 ";
  if (told == 0) {
    CHECK(lines_starting_with(outcome.out, "told ").empty());
  } else {
    // A rank that looks late finds another that has ended because of it.
    CHECK(!lines_starting_with(outcome.out, code_told + as_told).empty());
    CHECK(lines_starting_with(outcome.out, code_told).size() >= told);
  }
}

}  // namespace

TEST_CASE("a program in C passes its checks on one and on two ranks") {
  check_passes(1);
  check_passes(2);
}

TEST_CASE("a program in C passes its checks on three ranks") {
  check_passes(3);
}

TEST_CASE("a program in C passes its checks on four ranks") {
  check_passes(4);
}

TEST_CASE("the program in C of the documents has the same bits on any number of ranks") {
  for (const int ranks : {1, 2, 3}) {
    const Outcome outcome = run_command({"mpirun", "-n", std::to_string(ranks), std::getenv("LOCKSTEP_README_HEAT")},
                                        {.environment = mpi_environment()});
    INFO(outcome.err);
    CHECK(outcome.out == "2606 steps, heat 0x1.325c98a01ea29p+12\n");
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("a killed rank of a program in C is named in one line, with its phase, and ends the job") {
  check_lost("lost", code_of_killed(), "is gone: its process ended", 0);
}

TEST_CASE("each rank that is left is told of a killed one, and may end by itself") {
  check_lost("told", code_of_killed(), "is gone: its process ended", 2);
}

TEST_CASE("a rank that leaves early is no rank to wait for") {
  const Outcome finalized = program(3, "leave");
  INFO("stderr: " << finalized.err);
  CHECK(finalized.exit_code == 0);
  CHECK(lines_starting_with(finalized.err, "lockstep:").empty());
  const Outcome exited = program(3, "leave-by-exit");
  INFO("stderr: " << exited.err);
  CHECK(exited.exit_code == 42);
  const auto lines = lines_starting_with(exited.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (worker:1, world rank 1, host ") &&
                                Catch::Contains("called exit(42) before the end of the job"));
}

TEST_CASE("ranks that give up say why once, and end with the code of that") {
  for (const auto& [mode, code, sentence] : {std::tuple{"abort", 3, "is at agree #1 (program.c:"},
                                             {"abort-alone", 4, "failed: lockstep_agree (program.c:"}}) {
    const Outcome outcome = program(3, mode);
    INFO("stderr: " << outcome.err);
    CHECK(outcome.exit_code == code);
    const auto lines = lines_starting_with(outcome.err, "lockstep:");
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines.front(),
               Catch::StartsWith("lockstep: replica 1 (worker:1, world rank 1, host ") && Catch::Contains(sentence));
  }
}

TEST_CASE("each rank that is left is told of a rank that stalls, and ends if that returns") {
  check_lost("stall", code_of_stopped_without_mpi, "has stopped: no sign of life for 0.5 s", 2);
}

TEST_CASE("a rank of a program in C that is late is told what it needs") {
  const Outcome outcome = program(2, "late");
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 5);
  const auto lines = lines_starting_with(outcome.err, "lockstep: replica 1 (");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains(" is late: ") && Catch::EndsWith(" or needs a longer stall timeout"));
}
