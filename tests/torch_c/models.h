/* What the parts of the program share. */
#ifndef LOCKSTEP_TESTS_TORCH_C_MODELS_H
#define LOCKSTEP_TESTS_TORCH_C_MODELS_H

#include "bridge.h"
#include "checks.h"

typedef struct rows_of_step {
  lockstep_array x, y;
} rows_of_step;

/* So many rows, for a loss of that name. Those of the last four calls are kept. */
rows_of_step rows_of(int step, int first, int count, const char* loss);

/* As the bridge trains. */
lockstep_model_options options_of(const char* optimizer, const char* loss);

/* A path in the folder of the test. Those of the last eight calls are kept. */
const char* in_folder(const char* name);

lockstep_model* load(lockstep_group* group, const char* name, const lockstep_model_options* options);
double train(lockstep_model* model, int first, int steps, const char* loss);
uint64_t digest_of(const lockstep_model* model);

void test_misuse(lockstep_group* all);

#endif
