// Catch2's implementation, compiled once for all test programs.
#define CATCH_CONFIG_RUNNER
#include "support/run_tests.hpp"

#include <cstdio>

#include <catch2/catch.hpp>

namespace lockstep::test {
namespace {

constexpr int skipped_code = 77;  // as Meson has it
bool skipped = false;

}  // namespace

int run_tests(int argc, char** argv) {
  const int failures = Catch::Session{}.run(argc, argv);
  if (failures == 0 && skipped) return skipped_code;
  return failures == skipped_code ? skipped_code + 1 : failures;
}

void skip(const std::string& reason) {
  skipped = true;
  std::printf("skipped: %s\n", reason.c_str());
}

}  // namespace lockstep::test
