// The program of the documents, started as a job beside the same in C, and how a failure without stat= ends a job.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

#include "support/job.hpp"

using namespace lockstep::test;

namespace {

std::string learn(const char* program, const char* ranks, const std::string& checkpoints) {
  const Outcome outcome =
      run_command({"mpirun", "-n", ranks, std::getenv(program), std::getenv("LOCKSTEP_SURROGATE_NET"), checkpoints},
                  {.environment = mpi_environment()});
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out, Catch::StartsWith("pressure ") && Catch::Contains(", weights "));
  // Fortran writes a digest in capitals.
  std::string text = outcome.out;
  std::ranges::transform(text, text.begin(), [](unsigned char each) { return std::tolower(each); });
  return text;
}

}  // namespace

TEST_CASE("the surrogate of the documents learns the bits of the one in C, also after a checkpoint of that one") {
  const TemporaryDirectory folder;
  const std::string in_c = learn("LOCKSTEP_README_SURROGATE", "1", folder.path() / "c");
  CHECK(learn("LOCKSTEP_README_SURROGATE_FORTRAN", "2", folder.path() / "fortran") == in_c);
  std::filesystem::remove_all(folder.path() / "c/step-300");
  std::filesystem::remove_all(folder.path() / "c/step-100");
  CHECK(learn("LOCKSTEP_README_SURROGATE_FORTRAN", "3", folder.path() / "c") == in_c);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "c/step-100"));
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
