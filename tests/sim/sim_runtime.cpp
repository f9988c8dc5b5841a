#include "support/mpi_main.hpp"

namespace lockstep::test {
namespace {

thread_local SimRuntime* current = nullptr;

}  // namespace

SimRuntime& runtime() {
  return *current;
}

void on_ranks_of_several_jobs(void (*body)()) {
  for (const int ranks : {1, 2, 3, 4, 9}) {
    CAPTURE(ranks);
    sim::run({.ranks = ranks, .seed = static_cast<std::uint64_t>(ranks)}, [&](Strategy& strategy, int) {
      SimRuntime of_rank{strategy};
      current = &of_rank;
      body();
    });
  }
}

}  // namespace lockstep::test
