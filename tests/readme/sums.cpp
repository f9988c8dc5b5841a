// Sums over all ranks: mpirun -n 3 sums
#include <cstdio>
#include <span>

#include <lockstep/lockstep.hpp>

int main(int argc, char** argv) {
  return lockstep::run_program(argc, argv, {.device = "cpu"}, [](lockstep::Runtime& runtime) {
    lockstep::Group all = runtime.group();
    double sums[] = {0.1 * all.rank(), 1};
    all.all_reduce(std::span{sums});
    if (all.rank() == 0) std::printf("%g from %g ranks\n", sums[0], sums[1]);
  });
}
