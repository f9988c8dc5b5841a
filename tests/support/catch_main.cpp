// The main of tests without MPI.
#include "support/run_tests.hpp"

int main(int argc, char** argv) {
  return lockstep::test::run_tests(argc, argv);
}
