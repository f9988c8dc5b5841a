/* Groups of libraries that know nothing of each other, and of parts of the ranks. */
#include "checks.h"

/* A library with a group of its own, whose ranks are in the opposite order. */
typedef struct library {
  lockstep_group* group;
} library;

static void library_begin(library* it, MPI_Comm communicator) {
  MPI_Comm turned;
  MPI_Comm_split(communicator, 0, -test_rank, &turned);
  CHECK(lockstep_group_create(turned, NULL, &it->group) == LOCKSTEP_OK);
  MPI_Comm_free(&turned);
}

static void library_work(library* it, double step) {
  double value = step * (lockstep_rank(it->group) + 1);
  CHECK(lockstep_broadcast(it->group, &value, 1, LOCKSTEP_F64, lockstep_size(it->group) - 1) == LOCKSTEP_OK);
  CHECK(value == step * lockstep_size(it->group));
}

void test_libraries(void) {
  library one = {NULL}, two = {NULL};
  lockstep_group* parts[16] = {NULL};
  int step;
  library_begin(&one, MPI_COMM_WORLD);
  library_begin(&two, MPI_COMM_WORLD);
  CHECK(lockstep_rank(one.group) == test_ranks - 1 - test_rank);
  for (step = 1; step < 4; ++step) {
    library_work(&one, step);
    library_work(&two, step + 0.5);
  }
  /* The first may end before the second. */
  CHECK(lockstep_group_free(&one.group) == LOCKSTEP_OK);
  for (step = 0; step < 16; ++step) {
    CHECK(lockstep_group_create(step % 2 ? MPI_COMM_SELF : MPI_COMM_WORLD, NULL, &parts[step]) == LOCKSTEP_OK);
    CHECK(lockstep_size(parts[step]) == (step % 2 ? 1 : test_ranks));
  }
  library_work(&two, 5);
  for (step = 0; step < 16; ++step) CHECK(lockstep_group_free(&parts[step]) == LOCKSTEP_OK);
  CHECK(lockstep_group_free(&two.group) == LOCKSTEP_OK);
}

/* A group of some ranks does not grow: a later one of more ranks is refused, on all of them. */
void test_parts(void) {
  lockstep_group *part = NULL, *all = NULL;
  lockstep_options options = LOCKSTEP_OPTIONS;
  MPI_Comm half;
  const int is_in = test_rank < (test_ranks + 1) / 2;
  MPI_Comm_split(MPI_COMM_WORLD, is_in ? 0 : MPI_UNDEFINED, 0, &half);
  if (is_in) CHECK(lockstep_group_create(half, NULL, &part) == LOCKSTEP_OK);
  if (test_ranks > 1) {
    if (is_in)
      CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, NULL, &all), LOCKSTEP_FAILURE,
                    "libraries.c:", "is not in the runtime's");
    else
      CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, NULL, &all), LOCKSTEP_PEER_FAILED, "replica 0 (world rank 0",
                    "is not in the runtime's");
    CHECK(all == NULL);
  }
  if (is_in) {
    CHECK_IN_STEP(part);
    CHECK(lockstep_group_free(&part) == LOCKSTEP_OK);
    MPI_Comm_free(&half);
  }
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &all) == LOCKSTEP_OK);
  CHECK_IN_STEP(all);
  CHECK(lockstep_group_free(&all) == LOCKSTEP_OK);
  /* Options are the same on all ranks, and valid. */
  options.stall_timeout = -1;
  CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, &options, &all), LOCKSTEP_USER_INPUT, "stall timeout -1", "");
  if (test_ranks == 1) return;
  options.stall_timeout = 20 + test_rank;
  CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, &options, &all), LOCKSTEP_USER_INPUT, "other options", "");
}
