// Catch2's runner for the programs that have a main of their own.
#pragma once

namespace lockstep::test {

/// Runs the tests that the command line selects. Returns 0 if all of them passed.
int run_tests(int argc, char** argv);

}  // namespace lockstep::test
