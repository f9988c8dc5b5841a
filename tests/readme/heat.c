/* The heat of a rod, whose cells the ranks share: mpirun -n 2 heat */
#include <math.h>
#include <stdio.h>

#include <lockstep/lockstep.h>

enum { cells = 300 };

static void check(int code) {
  if (code != LOCKSTEP_OK) lockstep_abort();
}

int main(int argc, char** argv) {
  double heat[cells + 2] = {0}, next[cells + 2] = {0}, change = 1, total = 0;
  const double tolerance = 1e-3;
  lockstep_group* all = NULL;
  int first, last, i, step = 0;

  MPI_Init(&argc, &argv);
  check(lockstep_group_create(MPI_COMM_WORLD, NULL, &all));
  check(lockstep_same_on_all(all, "tolerance", &tolerance, sizeof tolerance));
  first = 1 + cells * lockstep_rank(all) / lockstep_size(all);
  last = cells * (lockstep_rank(all) + 1) / lockstep_size(all);
  for (i = first; i <= last; ++i) heat[i] = i % 7 == 0 ? i : 0;

  lockstep_phase(all, "diffusing");
  while (change > tolerance) {
    const int left = first > 1 ? lockstep_rank(all) - 1 : MPI_PROC_NULL;
    const int right = last < cells ? lockstep_rank(all) + 1 : MPI_PROC_NULL;
    double changes[cells];
    MPI_Sendrecv(&heat[first], 1, MPI_DOUBLE, left, 0, &heat[last + 1], 1, MPI_DOUBLE, right, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&heat[last], 1, MPI_DOUBLE, right, 0, &heat[first - 1], 1, MPI_DOUBLE, left, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (i = first; i <= last; ++i) {
      next[i] = heat[i] + 0.4 * (heat[i - 1] - 2 * heat[i] + heat[i + 1]);
      changes[i - first] = fabs(next[i] - heat[i]) / cells;
    }
    for (i = first; i <= last; ++i) heat[i] = next[i];
    /* The same bits on any number of ranks, so all runs end after the same step. */
    check(lockstep_exact_sum(all, changes, last - first + 1, LOCKSTEP_F64, &change));
    ++step;
  }
  check(lockstep_exact_sum(all, &heat[first], last - first + 1, LOCKSTEP_F64, &total));
  if (lockstep_rank(all) == 0) printf("%d steps, heat %a\n", step, total);
  check(lockstep_group_free(&all));
  return MPI_Finalize();
}
