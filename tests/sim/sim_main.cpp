// The main of the suites of tests/mpi on simulated ranks: each test runs on every rank of several jobs of sim::run.
#include <lockstep/job/sim/sim.hpp>

#include "support/ranks.hpp"
#include "support/run_tests.hpp"

namespace lockstep::test {
namespace {

thread_local RankRuntime* current = nullptr;

}  // namespace

RankRuntime& runtime() {
  return *current;
}

void on_each_rank(void (*body)()) {
  // tests/mpi runs on 1 to 4 real ones: here on few, and on more than there are shards.
  for (const int ranks : {2, 9}) {
    CAPTURE(ranks);
    sim::run({.ranks = ranks, .seed = static_cast<std::uint64_t>(ranks)}, [&](Strategy& strategy, int) {
      RankRuntime of_rank{strategy};
      current = &of_rank;
      body();
    });
  }
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
  return lockstep::test::run_tests(argc, argv);
}
