// Catch2's main for tests under mpirun: every rank runs every test, and the program fails if one of them did.
#define CATCH_CONFIG_RUNNER
#include "support/mpi_main.hpp"

#include <cstdio>
#include <cstdlib>

#include <catch2/catch.hpp>

namespace lockstep::test {
namespace {

Runtime* current = nullptr;

int expected_ranks() {
  const char* const text = std::getenv("LOCKSTEP_TEST_RANKS");
  return text ? std::atoi(text) : -1;
}

}  // namespace

Runtime& runtime() {
  return *current;
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
  using namespace lockstep;
  int failed = 1;
  const int code = run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu", .stall_timeout = std::chrono::seconds{20}}; },
      [&](Runtime& runtime) {
        if (runtime.size() != test::expected_ranks())
          throw ConfigError{"LOCKSTEP_TEST_RANKS: this test runs under mpirun with as many ranks as that says"};
        test::current = &runtime;
        Catch::Session session;
        // One rank speaks for all, unless it has nothing to say about what failed elsewhere.
        if (const int usage = session.applyCommandLine(argc, argv); usage != 0) throw ConfigError{"the test's options"};
        const int mine = session.run() == 0 ? 0 : 1;
        failed = runtime.strategy().reduce(ReduceOp::sum, PerReplica<int>{mine});
      });
  return code != 0 ? code : failed ? 1 : 0;
}
