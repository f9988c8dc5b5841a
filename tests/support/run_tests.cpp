// Catch2's implementation, compiled once for all test programs.
#define CATCH_CONFIG_RUNNER
#include "support/run_tests.hpp"

#include <catch2/catch.hpp>

namespace lockstep::test {

int run_tests(int argc, char** argv) {
  return Catch::Session{}.run(argc, argv);
}

}  // namespace lockstep::test
