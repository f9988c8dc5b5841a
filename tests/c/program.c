/* Groups of a C program: `program RANKS` tests them on so many ranks, `program MODE` loses a rank, or gives up, or
 * leaves early. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "checks.h"

int test_rank, test_ranks;

enum { signals = 65 };

static void note_handlers(struct sigaction* handlers) {
  int number;
  for (number = 1; number < signals; ++number) (void)sigaction(number, NULL, &handlers[number]);
}

static void check_handlers(const struct sigaction* before) {
  static struct sigaction now[signals];
  int number;
  note_handlers(now);
  for (number = 1; number < signals; ++number) CHECK(now[number].sa_handler == before[number].sa_handler);
}

static void test_all(void) {
  static struct sigaction before[signals];
  lockstep_group* all = NULL;
  note_handlers(before);
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &all) == LOCKSTEP_OK);
  CHECK(lockstep_rank(all) == test_rank);
  CHECK(lockstep_size(all) == test_ranks);
  check_handlers(before);
  test_sums(all);
  test_agreements(all);
  test_disagreements(all);
  test_arguments(all);
  CHECK(lockstep_group_free(&all) == LOCKSTEP_OK);
  CHECK(all == NULL);
  test_libraries();
  test_parts();
  check_handlers(before);
}

/* Of a lost rank: ends the process, unless `context` is null. */
static void be_told(int code, const char* sentence, void* context) {
  char line[1024];
  const int length = snprintf(line, sizeof line, "told %d %s\n", code, sentence);
  if (write(STDOUT_FILENO, line, (size_t)length) != length) _Exit(98);
  if (context) exit(7);
}

/* Rank 1 is killed, stops or is late, in a phase, before a sum. Another part of the program has made a group since or,
 * if rank 1 stops, has named another phase and freed its group. */
static void lose(const char* mode) {
  lockstep_options options = LOCKSTEP_OPTIONS;
  lockstep_group *all = NULL, *another = NULL;
  int other = 0;
  options.stall_timeout = strcmp(mode, "stall") == 0 || strcmp(mode, "late") == 0 ? 0.5 : 20;
  if (strcmp(mode, "lost") != 0) options.on_lost = be_told;
  if (strcmp(mode, "told") == 0) options.context = &other;
  CHECK(lockstep_group_create(MPI_COMM_WORLD, &options, &all) == LOCKSTEP_OK);
  CHECK(lockstep_phase(all, "marching up the hill and down again, forty-eight!") == LOCKSTEP_OK);
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &another) == LOCKSTEP_OK);
  if (strcmp(mode, "stall") == 0) {
    CHECK(lockstep_phase(another, "coming home") == LOCKSTEP_OK);
    CHECK(lockstep_group_free(&another) == LOCKSTEP_OK);
  }
  CHECK(lockstep_agree(all, "the march") == LOCKSTEP_OK);
  while (test_rank == 1 && strcmp(mode, "late") == 0) (void)pause();
  if (test_rank == 1) raise(strcmp(mode, "stall") == 0 ? SIGSTOP : SIGKILL);
  CHECK_IN_STEP(all);
}

/* All ranks end the job because of the same failure, or one because of its own. */
static void give_up(const char* mode) {
  lockstep_group* all = NULL;
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &all) == LOCKSTEP_OK);
  if (strcmp(mode, "abort-alone") == 0 && test_rank == 1) {
    CHECK(lockstep_agree(NULL, "nothing") == LOCKSTEP_FAILURE);
    lockstep_abort();
  }
  if (lockstep_agree(all, test_rank == 1 ? "this" : "that") != LOCKSTEP_OK) lockstep_abort();
}

/* Rank 1 ends MPI before the others, which hear of it and then end MPI, too; or it calls exit. */
static int leave(const char* mode) {
  lockstep_group* all = NULL;
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &all) == LOCKSTEP_OK);
  if (test_rank == 1 && strcmp(mode, "leave-by-exit") == 0) exit(42);
  if (test_rank != 1)
    CHECK_REFUSED(lockstep_agree(all, "more"), strcmp(mode, "leave") == 0 ? LOCKSTEP_MISMATCH : LOCKSTEP_PEER_FAILED,
                  "replica 1 (", strcmp(mode, "leave") == 0 ? "has finished the job" : "called exit(42)");
  return MPI_Finalize();
}

int main(int argc, char** argv) {
  lockstep_group* late = NULL;
  const int expected = argc > 1 ? atoi(argv[1]) : 0;
  CHECK(strcmp(lockstep_last_error(), "") == 0 && lockstep_last_code() == LOCKSTEP_OK);
  CHECK(strcmp(lockstep_version(), LOCKSTEP_EXPECTED_VERSION) == 0);
  CHECK_REFUSED(lockstep_group_create(MPI_COMM_WORLD, NULL, &late), LOCKSTEP_FAILURE,
                "lockstep_group_create (program.c:", "MPI has not been started");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &test_rank);
  MPI_Comm_size(MPI_COMM_WORLD, &test_ranks);
  if (expected == 0) {
    if (strncmp(argv[1], "leave", 5) == 0) return leave(argv[1]);
    strncmp(argv[1], "abort", 5) == 0 ? give_up(argv[1]) : lose(argv[1]);
    return 97;
  }
  CHECK(test_ranks == expected);
  test_all();
  /* Freed after MPI has ended, where the ranks leave together. */
  CHECK(lockstep_group_create(MPI_COMM_WORLD, NULL, &late) == LOCKSTEP_OK);
  CHECK(lockstep_phase(late, "ending") == LOCKSTEP_OK);
  MPI_Finalize();
  if (lockstep_group_free(&late) != LOCKSTEP_OK || late != NULL) return 96;
  if (lockstep_group_create(MPI_COMM_WORLD, NULL, &late) != LOCKSTEP_FAILURE) return 95;
  if (strstr(lockstep_last_error(), "MPI has ended") == NULL) return 94;
  if (test_rank == 0) puts("all checks passed");
  return 0;
}
