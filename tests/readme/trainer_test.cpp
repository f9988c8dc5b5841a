// The trainer of README.md, run as a reader would: it learns, and its weights do not depend on the number of ranks.
#include <cstdlib>
#include <stdexcept>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/job.hpp"

using namespace lockstep::test;

namespace {

struct Plane {
  double x = 0, y = 0, offset = 0;
  std::string digest;
};

/// What the trainer says on its last line.
Plane train_on(int ranks) {
  const char* trainer = std::getenv("LOCKSTEP_README_TRAINER");
  if (!trainer) throw std::runtime_error{"LOCKSTEP_README_TRAINER is not set: run this with `meson test`"};
  const Outcome outcome =
      run_command({"mpirun", "-n", std::to_string(ranks), trainer}, {.environment = mpi_environment()});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  // The chief alone prints.
  CHECK(lines_starting_with(outcome.out, "step 0:").size() == 1);
  const std::string line = last_line(outcome.out);
  INFO(line);
  Plane plane;
  char digest[17] = {};
  REQUIRE(std::sscanf(line.c_str(), "z = %lf x %lf y %lf, weights %16s", &plane.x, &plane.y, &plane.offset, digest) ==
          4);
  plane.digest = digest;
  return plane;
}

}  // namespace

TEST_CASE("the trainer of README.md finds the plane on 1, 2 and 3 ranks") {
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const Plane plane = train_on(ranks);
    CHECK(plane.x == Approx(3).margin(0.01));
    CHECK(plane.y == Approx(-2).margin(0.01));
    CHECK(plane.offset == Approx(1).margin(0.01));
  }
}

TEST_CASE("the trainer of README.md ends in the same weights on 1, 2 and 4 ranks") {
  const std::string on_one = train_on(1).digest;
  CHECK(train_on(2).digest == on_one);
  CHECK(train_on(4).digest == on_one);
}
