// The program of the documents, started as a job.
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "support/job.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

std::string learn(const char* ranks, const std::string& checkpoints) {
  const Outcome outcome = run_command({"mpirun", "-n", ranks, std::getenv("LOCKSTEP_README_SURROGATE"),
                                       std::getenv("LOCKSTEP_SURROGATE_NET"), checkpoints},
                                      {.environment = mpi_environment()});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out, Catch::StartsWith("pressure ") && Catch::Contains(", weights "));
  return outcome.out;
}

}  // namespace

TEST_CASE("the surrogate of the documents learns the same bits on one rank, and on 2 to 4 after a checkpoint of one") {
  const TemporaryDirectory folder;
  const std::string once = learn("1", folder.path() / "1");
  for (const char* ranks : {"2", "3", "4"}) {
    CAPTURE(ranks);
    // As after a kill in step 200. Its steps are not made again: no checkpoint is written of step 100.
    std::filesystem::remove_all(folder.path() / "1/step-300");
    std::filesystem::remove_all(folder.path() / "1/step-100");
    CHECK(learn(ranks, folder.path() / "1") == once);
    CHECK_FALSE(std::filesystem::exists(folder.path() / "1/step-100"));
  }
}

TEST_CASE("a rank that is lost after a step that failed is named with its phase") {
  const Outcome outcome = run_command(
      {"mpirun", "-n", "2", std::getenv("LOCKSTEP_TORCH_C_PROGRAM"), "lost", std::getenv("LOCKSTEP_SURROGATE_NET")},
      {.environment = mpi_environment()});
  INFO("stderr: " << outcome.err);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  if (lines.empty() && may_be_unnamed(outcome.exit_code)) return;
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (") &&
                                Catch::Contains("it was in 'solving', computing after agree #"));
}
