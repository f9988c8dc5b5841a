/* Checks of the C programs: each ends the job with its place if it fails. */
#ifndef LOCKSTEP_TESTS_C_CHECKS_H
#define LOCKSTEP_TESTS_C_CHECKS_H

#include <stdio.h>
#include <string.h>

#include <lockstep/lockstep.h>

/* This rank and their number, as MPI says it. */
extern int test_rank, test_ranks;

static inline void check_at(int holds, const char* what, const char* at) {
  if (holds) return;
  fprintf(stderr, "rank %d, %s: expected %s; last error %d: %s\n", test_rank, at, what, lockstep_last_code(),
          lockstep_last_error());
  MPI_Abort(MPI_COMM_WORLD, 99);
}
#define CHECK(holds) check_at((holds) != 0, #holds, LOCKSTEP_HERE)

/* Whether a call failed with that code, and a sentence that holds both texts. */
static inline void check_refused_at(int code, int expected, const char* text, const char* more, const char* at) {
  check_at(code == expected, "another code", at);
  check_at(lockstep_last_code() == expected, "the code again", at);
  check_at(strstr(lockstep_last_error(), text) != NULL, text, at);
  check_at(strstr(lockstep_last_error(), more) != NULL, more, at);
}
#define CHECK_REFUSED(call, code, text, more) check_refused_at(call, code, text, more, LOCKSTEP_HERE)

/* A sum, which fails unless the ranks are in step. */
static inline void check_in_step(lockstep_group* group, const char* at) {
  int64_t sum = 1;
  check_at((lockstep_all_reduce)(group, LOCKSTEP_IN_PLACE, &sum, 1, LOCKSTEP_I64, LOCKSTEP_SUM, at) == LOCKSTEP_OK,
           "a sum", at);
  check_at(sum == lockstep_size(group), "the number of ranks", at);
}
#define CHECK_IN_STEP(group) check_in_step(group, LOCKSTEP_HERE)

/* What the parts of the program test. */
void test_sums(lockstep_group* all);
void test_agreements(lockstep_group* all);
void test_disagreements(lockstep_group* all);
void test_arguments(lockstep_group* all);
void test_libraries(void);
void test_parts(void);

#endif
