// The programs in apps/examples, run as a reader would.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

#include "support/job.hpp"

using namespace lockstep::test;

namespace {

/// What the program says on its last line.
std::string train_on(int ranks, const std::filesystem::path& checkpoint) {
  const char* const program = std::getenv("LOCKSTEP_EXAMPLE_SEQUENCES");
  REQUIRE(program);
  const Outcome outcome = run_command({"mpirun", "-n", std::to_string(ranks), program, checkpoint.string()},
                                      {.environment = mpi_environment()});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.out, "epoch 1: ").size() == 1);  // of the chief alone
  return last_line(outcome.out);
}

}  // namespace

TEST_CASE("the own model of the example learns its sequences, with the same weights on 1 and 2 ranks") {
  const TemporaryDirectory folder;
  const std::string on_one = train_on(1, folder.path() / "one"), on_two = train_on(2, folder.path() / "two");
  INFO(on_one);
  double before = 0, earlier = 0, constant = 0;
  REQUIRE(std::sscanf(on_one.c_str(), "x[t] = %lf x[t-1] %lf x[t-2] %lf", &before, &earlier, &constant) == 3);
  CHECK(before == Approx(1.6).margin(0.002));
  CHECK(earlier == Approx(-0.8).margin(0.002));
  CHECK(constant == Approx(0.1).margin(0.002));
  CHECK(on_two == on_one);
  CHECK(read_file(folder.path() / "two") == read_file(folder.path() / "one"));
}
