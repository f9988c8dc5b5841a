/* What ranks agree on, and what they are told if they do not. */
#include "checks.h"

static int is_last(void) {
  return test_rank == test_ranks - 1;
}

static void test_replicas(lockstep_group* all) {
  double field[4] = {1, 2, 3, 4};
  char last[32];
  int differing = 5;
  CHECK(lockstep_check_replicas(all, "field", field, sizeof field, &differing) == LOCKSTEP_OK);
  CHECK(differing == -1);
  if (test_ranks == 1) return;
  if (is_last()) field[2] = 3.5;
  (void)snprintf(last, sizeof last, "replica %d (", test_ranks - 1);
  CHECK_REFUSED(lockstep_check_replicas(all, "field", field, sizeof field, &differing), LOCKSTEP_REPLICAS_DIFFER,
                "'field'", last);
  CHECK(differing == (test_ranks > 2 ? test_ranks - 1 : -1));
  CHECK_REFUSED(lockstep_check_replicas(all, "field", field, sizeof field, NULL), LOCKSTEP_REPLICAS_DIFFER, "'field'",
                test_ranks > 2 ? "differs from the others" : "no majority can be told");
  CHECK_IN_STEP(all);
}

void test_agreements(lockstep_group* all) {
  const double tolerance = 1e-6;
  CHECK(lockstep_agree(all, "the mesh") == LOCKSTEP_OK);
  CHECK(lockstep_same_on_all(all, "tolerance", &tolerance, sizeof tolerance) == LOCKSTEP_OK);
  CHECK(lockstep_same_on_all(all, "nothing", NULL, 0) == LOCKSTEP_OK);
  test_replicas(all);
  CHECK(lockstep_phase(all, "checking") == LOCKSTEP_OK);
  CHECK(lockstep_phase(all, NULL) == LOCKSTEP_OK);
}

/* On the last rank `theirs`, on the others `ours`. All get the same sentence, with both texts, and can go on. */
#define CHECK_MISMATCH(all, ours, theirs, text, more)   \
  do {                                                  \
    const int code = is_last() ? (theirs) : (ours);     \
    CHECK_REFUSED(code, LOCKSTEP_MISMATCH, text, more); \
    check_same_sentence(all);                           \
  } while (0)

static void check_same_sentence(lockstep_group* all) {
  char sentence[1024];
  (void)snprintf(sentence, sizeof sentence, "%s", lockstep_last_error());
  CHECK((lockstep_same_on_all)(all, "sentence", sentence, strlen(sentence), NULL) == LOCKSTEP_OK);
  CHECK_IN_STEP(all);
}

void test_disagreements(lockstep_group* all) {
  double values[4] = {1, 2, 3, 4};
  const double tolerance = is_last() ? 1e-3 : 1e-6;
  const int root = is_last() ? 1 : 0, op = is_last() ? LOCKSTEP_EXACT_SUM : LOCKSTEP_SUM;
  lockstep_group* same = all;
  if (test_ranks == 1) return;
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, is_last() ? 3 : 4, LOCKSTEP_F64, LOCKSTEP_SUM),
                LOCKSTEP_MISMATCH, "f64[4]", "f64[3]");
  CHECK(values[0] == 1 && values[3] == 4);
  CHECK_REFUSED(
      lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, 4, is_last() ? LOCKSTEP_I64 : LOCKSTEP_F64, LOCKSTEP_SUM),
      LOCKSTEP_MISMATCH, "f64[4]", "i64[4]");
  CHECK_REFUSED(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, values, 4, LOCKSTEP_F64, op), LOCKSTEP_MISMATCH, "sum",
                "exact sum");
  CHECK_REFUSED(lockstep_broadcast(all, values, 4, LOCKSTEP_F64, root), LOCKSTEP_MISMATCH, "from rank 0",
                "from rank 1");
  CHECK_REFUSED(lockstep_same_on_all(all, "tolerance", &tolerance, sizeof tolerance), LOCKSTEP_MISMATCH,
                "'tolerance': 0.001", "1e-06");
  CHECK_REFUSED(lockstep_agree(all, is_last() ? "the mesh" : "the field"), LOCKSTEP_MISMATCH, "'the mesh'",
                "'the field'");
  CHECK_MISMATCH(all, lockstep_agree(all, "the mesh"), lockstep_broadcast(all, values, 4, LOCKSTEP_F64, 0), "agree #",
                 "broadcast #");
  /* Other lines, and lines that nobody compares. */
  if (is_last())
    CHECK_REFUSED(lockstep_agree(all, "here"), LOCKSTEP_MISMATCH, "agree #", "agreements.c:");
  else
    CHECK_REFUSED(lockstep_agree(all, "here"), LOCKSTEP_MISMATCH, "agree #", "agreements.c:");
  if (is_last())
    CHECK((lockstep_agree)(all, "anywhere", NULL) == LOCKSTEP_OK);
  else
    CHECK((lockstep_agree)(all, "anywhere", NULL) == LOCKSTEP_OK);
  CHECK_REFUSED((lockstep_agree)(all, "named", is_last() ? "the last" : "the first"), LOCKSTEP_MISMATCH, "agree #",
                "(the last)");
  /* A rank that ends the group does not end it for the others. */
  CHECK_MISMATCH(all, lockstep_agree(all, "more"), lockstep_group_free(&same), "'more'", "agree #");
  CHECK(same == all);
  /* A rank that cannot go on. */
  if (is_last())
    CHECK_REFUSED(lockstep_fail(all, "there is no mesh"), LOCKSTEP_FAILURE, "there is no mesh", "");
  else
    CHECK_REFUSED(lockstep_agree(all, "the mesh"), LOCKSTEP_PEER_FAILED, "failed: there is no mesh", "replica ");
  CHECK_IN_STEP(all);
}
