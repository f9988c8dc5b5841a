// Catch2's runner for the programs that have a main of their own, and test cases that cannot be run everywhere.
#pragma once

#include <string>

namespace lockstep::test {

/// Runs the tests that the command line selects. Returns 0 if all of them passed, and 77 if one of those called `skip`.
int run_tests(int argc, char** argv);

/// Says why the rest of a test case is not run here: `return skip("no GPU");`. Meson runs such a test case by itself,
/// so that it counts as skipped.
void skip(const std::string& reason);

}  // namespace lockstep::test
