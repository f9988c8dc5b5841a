/* Arguments that are wrong on all ranks, or on one. */
#include <pthread.h>

#include "checks.h"

static void* use_on_other_thread(void* group) {
  lockstep_group* other = NULL;
  CHECK(lockstep_last_code() == LOCKSTEP_OK);
  CHECK_REFUSED(lockstep_agree((lockstep_group*)group, "elsewhere"), LOCKSTEP_FAILURE, "misuse.c:", "another thread");
  CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, NULL, &other), LOCKSTEP_FAILURE, "misuse.c:", "another thread");
  return NULL;
}

static void test_handles(lockstep_group* all) {
  lockstep_group *none = NULL, *freed = NULL;
  lockstep_options options = LOCKSTEP_OPTIONS;
  double value = 1;
  MPI_Comm world;
  pthread_t thread;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  CHECK_REFUSED(lockstep_all_reduce(none, LOCKSTEP_IN_PLACE, &value, 1, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                "lockstep_all_reduce (misuse.c:", "NULL");
  CHECK_REFUSED(lockstep_agree((lockstep_group*)(void*)&value, "it"), LOCKSTEP_FAILURE, "lockstep_agree (", "none");
  CHECK(lockstep_rank(NULL) == -1 && lockstep_size((lockstep_group*)(void*)&value) == -1);
  CHECK_REFUSED(lockstep_phase(NULL, "it"), LOCKSTEP_FAILURE, "the group is NULL", "");
  CHECK(lockstep_group_free(&none) == LOCKSTEP_OK);
  CHECK_REFUSED(lockstep_group_free(NULL), LOCKSTEP_FAILURE, "misuse.c:", "is NULL");
  CHECK_REFUSED(lockstep_group_create(world, NULL, NULL), LOCKSTEP_FAILURE, "misuse.c:", "is NULL");
  none = all;
  CHECK_REFUSED(lockstep_group_create(MPI_COMM_NULL, NULL, &none), LOCKSTEP_FAILURE, "misuse.c:", "MPI_COMM_NULL");
  CHECK(none == NULL);
  options.size = 3;
  CHECK_REFUSED(lockstep_group_create(world, &options, &none), LOCKSTEP_FAILURE, "size 3", "LOCKSTEP_OPTIONS");
  CHECK(lockstep_group_create_f(MPI_Comm_c2f(world), NULL, &none) == LOCKSTEP_OK);
  MPI_Comm_free(&world);
  freed = none;
  CHECK(lockstep_group_free(&none) == LOCKSTEP_OK);
  CHECK_REFUSED(lockstep_agree(freed, "it"), LOCKSTEP_FAILURE, "was freed", "");
  CHECK_REFUSED(lockstep_group_free(&freed), LOCKSTEP_FAILURE, "was freed", "");
  CHECK(pthread_create(&thread, NULL, use_on_other_thread, all) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
}

/* On all ranks: each gets its own. */
static void test_wrong_everywhere(lockstep_group* all) {
  double values[4] = {1, 2, 3, 4};
  char* const bytes = (char*)values;
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, -1, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                "lockstep_all_reduce (misuse.c:", "count -1");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, INT64_MAX, LOCKSTEP_F64, LOCKSTEP_SUM),
                LOCKSTEP_FAILURE, "count 9223372036854775807", "memory");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, NULL, 1, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                "receive is NULL", "");
  CHECK_REFUSED(lockstep_all_reduce(all, NULL, values, 1, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE, "send is NULL",
                "");
  CHECK_REFUSED(lockstep_all_reduce(all, values, values + 1, 2, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                "overlap", "LOCKSTEP_IN_PLACE");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, bytes + 1, 1, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                "not aligned", "");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, 1, 99, LOCKSTEP_SUM), LOCKSTEP_FAILURE, "type 99",
                "LOCKSTEP_F32");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, 1, LOCKSTEP_F64, 0), LOCKSTEP_FAILURE,
                "operation 0", "LOCKSTEP_SUM");
  CHECK_REFUSED(lockstep_exact_sum(all, values, -2, LOCKSTEP_F64, values), LOCKSTEP_FAILURE, "count -2", "");
  CHECK_REFUSED(lockstep_exact_sum(all, values, 2, LOCKSTEP_F64, NULL), LOCKSTEP_FAILURE, "result is NULL", "");
  CHECK_REFUSED(lockstep_broadcast(all, values, 1, LOCKSTEP_F64, test_ranks), LOCKSTEP_FAILURE, "root ", "0 to ");
  CHECK_REFUSED(lockstep_broadcast(all, values, 1, LOCKSTEP_F64, -1), LOCKSTEP_FAILURE, "root -1", "");
  CHECK_REFUSED(lockstep_agree(all, NULL), LOCKSTEP_FAILURE, "label is NULL", "");
  CHECK_REFUSED(lockstep_same_on_all(all, NULL, values, 8), LOCKSTEP_FAILURE, "name is NULL", "");
  CHECK_REFUSED(lockstep_same_on_all(all, "x", NULL, 8), LOCKSTEP_FAILURE, "value is NULL", "");
  CHECK_REFUSED(lockstep_check_replicas(all, "x", NULL, 8, NULL), LOCKSTEP_FAILURE, "value is NULL", "");
  CHECK(values[0] == 1 && values[1] == 2 && values[2] == 3 && values[3] == 4);
  CHECK_IN_STEP(all);
}

void test_arguments(lockstep_group* all) {
  double value = 1;
  test_handles(all);
  test_wrong_everywhere(all);
  if (test_ranks == 1) return;
  /* On one rank, of which the others hear. */
  if (test_rank == 1)
    CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, &value, -3, LOCKSTEP_F64, LOCKSTEP_SUM), LOCKSTEP_FAILURE,
                  "count -3", "");
  else
    CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, &value, 1, LOCKSTEP_F64, LOCKSTEP_SUM),
                  LOCKSTEP_PEER_FAILED, "replica 1 (", "count -3");
  CHECK(value == 1);
  CHECK_IN_STEP(all);
}
