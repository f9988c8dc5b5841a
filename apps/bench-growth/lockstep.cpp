// The least that a program of lockstep does, for scripts/growth: mpirun -n 3 bench-growth-lockstep [footprint]
#include <cstdio>
#include <span>

#include <lockstep/lockstep.hpp>

#include "apps/bench-growth/footprint.hpp"

int main(int argc, char** argv) {
  return lockstep::run_program(argc, argv, {.device = "cpu"}, [&](lockstep::Runtime& runtime) {
    lockstep::Group all = runtime.group();
    double ranks[] = {1};
    all.all_reduce(std::span{ranks});
    if (argc > 1) {
      print_footprint();
      all.all_reduce(std::span{ranks});  // nobody leaves before
    } else if (all.rank() == 0) {
      std::printf("%g\n", ranks[0]);
    }
  });
}
