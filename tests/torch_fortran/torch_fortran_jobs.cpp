// The example of a heat equation, started as jobs, and how a failure without stat= ends a job.
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "support/job.hpp"

using namespace lockstep::test;

TEST_CASE("a heat equation in Fortran learns and asks its surrogate to the same bits on any number of ranks") {
  const auto printed_on = [](const char* ranks) {
    const Outcome outcome = run_command(
        {"mpirun", "-n", ranks, std::getenv("LOCKSTEP_EXAMPLE_HEAT_SURROGATE"), std::getenv("LOCKSTEP_SURROGATE_NET")},
        {.environment = mpi_environment()});
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
    return outcome.out;
  };
  const std::string on_one = printed_on("1");
  CHECK_THAT(on_one, Catch::StartsWith("mean error 0.00") && Catch::Contains(", weights "));
  for (const char* ranks : {"2", "3", "4"}) {
    CAPTURE(ranks);
    CHECK(printed_on(ranks) == on_one);
  }
}

TEST_CASE("without stat=, ranks that disagree about a model end the job with the sentence, once, and its code") {
  const Outcome outcome = run_command({"mpirun", "-n", "2", std::getenv("LOCKSTEP_TORCH_FORTRAN_PROGRAM"), "disagree"},
                                      {.environment = mpi_environment()});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 3);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains("(program.f90:rate) with 'learning rate 1'"));
}
