// Programs in Fortran, started as jobs: on each number of ranks, and as failures without stat= end them.
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "support/job.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

Outcome started(int ranks, const char* program, const std::string& mode = {}) {
  const Outcome outcome = run_command({"mpirun", "-n", std::to_string(ranks), std::getenv(program), mode},
                                      {.environment = mpi_environment()});
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

void check_prints(int ranks, const char* program, const std::string& mode, const std::string& expected) {
  const Outcome outcome = started(ranks, program, mode);
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(outcome.out == expected);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

}  // namespace

TEST_CASE("a program in Fortran passes its checks on one and on two ranks") {
  check_prints(1, "LOCKSTEP_FORTRAN_PROGRAM", "1", "all checks passed\n");
  check_prints(2, "LOCKSTEP_FORTRAN_PROGRAM", "2", "all checks passed\n");
}

TEST_CASE("a program in Fortran passes its checks on three and on four ranks") {
  check_prints(3, "LOCKSTEP_FORTRAN_PROGRAM", "3", "all checks passed\n");
  check_prints(4, "LOCKSTEP_FORTRAN_PROGRAM", "4", "all checks passed\n");
}

TEST_CASE("a program with the module mpi has integers for communicators") {
  check_prints(2, "LOCKSTEP_FORTRAN_OLD_MPI", "", "all checks passed\n");
}

TEST_CASE("the program in Fortran of the documents has the same bits on any number of ranks") {
  for (const int ranks : {1, 2, 3})
    check_prints(ranks, "LOCKSTEP_README_HEAT_FORTRAN", "", "2606 steps, heat 4901.787262077015\n");
}

TEST_CASE("conjugate gradients have the same iterates on any number of ranks, to the last bit") {
  const auto lines = [](int ranks) {
    const Outcome outcome = started(ranks, "LOCKSTEP_EXAMPLE_CONJUGATE_GRADIENT");
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string on_one = lines(1);
  CHECK_THAT(on_one,
             Catch::Contains("iteration 50: residual ") && Catch::Contains("\n281 iterations, sum of x -14.566626"));
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    CHECK(lines(ranks) == on_one);
  }
}

TEST_CASE("without stat=, ranks that disagree end the job with the sentence, once, and its code") {
  const Outcome outcome = started(3, "LOCKSTEP_FORTRAN_PROGRAM", "disagree");
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 3);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (worker:1, world rank 1, host ") &&
                                Catch::Contains("is at all_reduce #1") &&
                                Catch::Contains("agree #1 (program.f90:end)"));
}

TEST_CASE("a killed rank of a program in Fortran is named with its phase, and on_lost is told") {
  const Outcome outcome = started(3, "LOCKSTEP_FORTRAN_PROGRAM", "lost");
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  const auto lines = lines_starting_with(outcome.err, "lockstep: replica 1 (worker:1, world rank 1, host ");
  if (lines.empty() && may_be_unnamed(outcome.exit_code)) return;
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains("it was in 'marching', computing"));
  CHECK(lines_starting_with(outcome.out, "told 4 replica 1 (").size() == 2);
}
