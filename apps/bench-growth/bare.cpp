// The least that a program of MPI does, for scripts/growth: mpirun -n 3 bench-growth-bare [footprint]
//
// It is a program in C: it loads no library of C++.
#include <mpi.h>

#include "apps/bench-growth/footprint.hpp"

int main(int argc, char** argv) {
  double ranks = 1;
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);  // what a runtime asks for
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (argc > 1) {
    print_footprint();
    MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);  // nobody leaves before
  } else if (rank == 0) {
    std::printf("%g\n", ranks);
  }
  return MPI_Finalize();
}
