// The trainers of the documents, run as a reader would: they learn, and the weights of the one with shards do not
// depend on the number of ranks.
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/job.hpp"

using namespace lockstep::test;

namespace {

struct Plane {
  double x = 0, y = 0, offset = 0;
  std::string digest;
};

/// How the program that `variable` names ends on `ranks` ranks.
Outcome outcome_of(const char* variable, int ranks, const std::string& argument = {}, Environment more = {}) {
  const char* const program = std::getenv(variable);
  if (!program) throw std::runtime_error{fmt::format("{} is not set: run this with `meson test`", variable)};
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks), program};
  if (!argument.empty()) command.push_back(argument);
  more.insert(mpi_environment().begin(), mpi_environment().end());
  return run_command(command, {.environment = std::move(more)});
}

/// What it says. The chief alone prints.
std::string output_of(const char* variable, int ranks, const std::string& argument = {}) {
  const Outcome outcome = outcome_of(variable, ranks, argument);
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

void check_found(const Plane& plane) {
  CHECK(plane.x == Approx(3).margin(0.01));
  CHECK(plane.y == Approx(-2).margin(0.01));
  CHECK(plane.offset == Approx(1).margin(0.01));
}

/// What the trainer says on its last line.
Plane train_on(int ranks) {
  const std::string output = output_of("LOCKSTEP_README_TRAINER", ranks);
  CHECK(lines_starting_with(output, "step 0:").size() == 1);
  const std::string line = last_line(output);
  INFO(line);
  Plane plane;
  char digest[17] = {};
  REQUIRE(std::sscanf(line.c_str(), "z = %lf x %lf y %lf, weights %16s", &plane.x, &plane.y, &plane.offset, digest) ==
          4);
  plane.digest = digest;
  return plane;
}

}  // namespace

TEST_CASE("the first trainers find the plane on 1 and 3 ranks") {
  for (const char* program : {"LOCKSTEP_README_FIRST", "LOCKSTEP_README_GENTLE"}) {
    for (const int ranks : {1, 3}) {
      CAPTURE(program, ranks);
      const std::string output = output_of(program, ranks);
      Plane plane;
      REQUIRE(std::sscanf(output.c_str(), "z = %lf x %lf y %lf\n", &plane.x, &plane.y, &plane.offset) == 3);
      CHECK(output.find('\n') + 1 == output.size());
      check_found(plane);
    }
  }
}

TEST_CASE("the trainer with shards finds the plane, and ends in the same weights on 1, 2, 3 and 5 ranks") {
  const Plane on_one = train_on(1);
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    const Plane found = train_on(ranks);
    check_found(found);
    CHECK(found.digest == on_one.digest);
  }
}

TEST_CASE(
    "the trainer with checkpoints that is killed goes on where the newest was saved, and ends in the same weights") {
  constexpr const char* program = "LOCKSTEP_README_RESUMED";
  const TemporaryDirectory folder;
  const std::string whole = last_line(output_of(program, 2, folder.path() / "whole"));
  INFO(whole);
  CHECK(whole.starts_with("from step 0: test loss 0.0"));
  const std::string killed = folder.path() / "killed";
  CHECK(outcome_of(program, 2, killed, {{"KILL_AFTER", "120"}, kills_at_once}).exit_code != 0);
  const std::string rest = last_line(output_of(program, 1, killed));
  INFO(rest);
  // The newest one may not have been written yet; the one before has.
  CHECK((rest.starts_with("from step 100:") || rest.starts_with("from step 50:")));
  CHECK(rest.substr(rest.find(':')) == whole.substr(whole.find(':')));
}

TEST_CASE("the smallest program with tensors computes and names a mistake") {
  const std::string output = output_of("LOCKSTEP_README_TENSORS", 1);
  CHECK(lines_starting_with(output, "the last two rows of f32[3, 2] add up to 36").size() == 1);
  CHECK(last_line(output).find("f64") != std::string::npos);
}

TEST_CASE("the smallest program sums over its ranks") {
  CHECK(output_of("LOCKSTEP_README_SUMS", 3) == "0.3 from 3 ranks\n");
}

TEST_CASE("a library of another version is refused in one line") {
  const Outcome outcome = outcome_of("LOCKSTEP_MIXED_VERSIONS", 2);
  CHECK(outcome.exit_code == 2);
  CHECK(lines_starting_with(outcome.err, "lockstep:") ==
        std::vector<std::string>{"lockstep: error: liblockstep-models.so belongs to lockstep 0.0.1-other, and "
                                 "liblockstep.so to lockstep " LOCKSTEP_VERSION
                                 "; expected both from one installation"});
}

TEST_CASE("the programs that the front doors show run") {
  CHECK(output_of("LOCKSTEP_FRONT_DOOR_LOCKSTEP", 2) == "0.1 from 2 ranks\n");
  CHECK(output_of("LOCKSTEP_FRONT_DOOR_TRAINING", 2) == "0.4375\n");
  CHECK(output_of("LOCKSTEP_FRONT_DOOR_TF", 2) == "3\n7\n5\n");
  CHECK(output_of("LOCKSTEP_FRONT_DOOR_MODELS", 2, std::getenv("LOCKSTEP_SMALL_DATA")).empty());
  // Weights begin where LibTorch's default seed puts them.
  if (std::getenv("LOCKSTEP_FRONT_DOOR_TORCH"))
    CHECK_THAT(output_of("LOCKSTEP_FRONT_DOOR_TORCH", 2), Catch::Matches("[0-9]+\\.[0-9]{3}\n"));
}
