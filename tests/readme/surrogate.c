/* Ranks learn an equation of state from the cells that they simulate: mpirun -n 2 surrogate net.pt checkpoints */
#include <math.h>
#include <stdio.h>

#include <lockstep/torch.h>

enum { cells = 64, steps = 300 };

static void check(int code) {
  if (code != LOCKSTEP_OK) lockstep_abort();
}

/* Density, temperature and speed of a cell, and its pressure and energy. */
static void simulate(int64_t step, int cell, double* state, double* result) {
  state[0] = 1 + 0.5 * sin(0.7 * cell + 0.1 * (double)step);
  state[1] = 1 + 0.5 * cos(1.3 * cell - 0.2 * (double)step);
  state[2] = sin(2.1 * cell);
  result[0] = state[0] * state[1];
  result[1] = 2.5 * state[1] + 0.5 * state[2] * state[2];
}

int main(int argc, char** argv) {
  double states[cells][3], results[cells][2], loss = 0;
  lockstep_model_options options = LOCKSTEP_MODEL_OPTIONS;
  lockstep_group* all = NULL;
  lockstep_model* model = NULL;
  uint64_t digest = 0;
  int64_t step = 0;
  int cell, first, last, own;

  if (argc != 3) return 2;
  MPI_Init(&argc, &argv);
  check(lockstep_group_create(MPI_COMM_WORLD, NULL, &all));
  options.learning_rate = 1e-2;
  options.shards = 4; /* the same bits on 1 to 4 ranks */
  check(lockstep_model_load(all, argv[1], &options, &model));
  check(lockstep_model_restore(model, argv[2], &step)); /* -1 at the first start */
  check(lockstep_model_shards(model, &first, &last));
  own = cells / options.shards * (last - first);
  first = cells / options.shards * first;

  for (step = step < 0 ? 0 : step; step < steps; ++step) {
    const lockstep_array x = {states, LOCKSTEP_F64, 2, {own, 3}}, y = {results, LOCKSTEP_F64, 2, {own, 2}};
    for (cell = 0; cell < own; ++cell) simulate(step, first + cell, states[cell], results[cell]);
    check(lockstep_model_train(model, &x, 1, &y, 1, &loss));
    if ((step + 1) % 100 == 0) check(lockstep_model_checkpoint(model, argv[2]));
  }

  {
    double state[3], result[2], learned[2];
    const lockstep_array x = {state, LOCKSTEP_F64, 2, {1, 3}}, y = {learned, LOCKSTEP_F64, 2, {1, 2}};
    simulate(steps, 5, state, result);
    check(lockstep_model_infer(model, &x, 1, &y, 1)); /* of this rank alone */
    check(lockstep_model_digest(model, &digest));
    if (lockstep_rank(all) == 0)
      printf("pressure %.2f for %.2f, weights %016llx\n", learned[0], result[0], (unsigned long long)digest);
  }
  check(lockstep_model_free(&model));
  check(lockstep_group_free(&all));
  return MPI_Finalize();
}
